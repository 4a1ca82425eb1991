"""Tables, figures and the page: draws what was measured, never computes."""
