"""The shipped ``s3://`` store against a real S3 server, and against one whose network lies."""
