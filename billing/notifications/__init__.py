"""Who gets which e-mail, and when: recipients, what each person has chosen, and what waits for whom."""
