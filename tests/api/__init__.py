"""What every public name promises: errors, arguments, text."""
