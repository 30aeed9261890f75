"""What is shown of a Dataset: tables, cards, captions, and files of pictures."""
