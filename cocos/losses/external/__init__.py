"""Losses that are not on the shelf: functions and modules of the user, of other libraries, and sums of losses."""
