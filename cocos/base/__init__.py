"""What every room stands on: errors, annotations and ranges, files that are opened and written."""
