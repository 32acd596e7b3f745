"""What differentially private learning is worth: epsilon from what was released, by the accountants of Opacus."""
