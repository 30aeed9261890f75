"""The study of contributing negatives and recall: trainings, their measurements, and the tests fixed beforehand."""
