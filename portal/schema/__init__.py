"""What makes the schema beside models: SQL in files, and an operation of migrations."""
