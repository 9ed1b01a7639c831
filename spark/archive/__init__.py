"""The source and the files of the job `archive`."""
