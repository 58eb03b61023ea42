"""What an application calls: answer, deliver, list, listen, of one compiled graph; and what is refused when it is made."""
