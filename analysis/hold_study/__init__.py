"""The second study: is it worth holding the number of negatives that share the push?"""
