"""The storm: many jobs on real processes, blows drawn from a seed, and a recount of what was lost, repeated or stuck."""
