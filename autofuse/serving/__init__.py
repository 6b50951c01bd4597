"""Plans that are served: bundles, and the order in which a plan is looked up."""
