"""The service under many clients."""
