"""The documents, and the code that generates those which list things."""
