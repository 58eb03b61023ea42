"""The LangGraph side: points that ask, the saver that opens pauses, the adapter that answers and delivers, the janitor."""
