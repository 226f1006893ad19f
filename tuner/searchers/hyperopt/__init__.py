"""HyperOpt's tree-structured Parzen estimator."""
