"""The pages around the package: the manifest of sections, the notebooks, and the links to them."""
