"""What stands in the way of measuring a queue, and the exact statement that mends it."""
