"""Who gets which notice, and when: recipients, what each person has chosen, and notices of documents."""
