"""Speed, as ratios against native LangGraph run side by side."""
