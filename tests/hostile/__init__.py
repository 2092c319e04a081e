"""What comes from outside, spoilt at random: at each door it becomes a row in quarantine, a refusal or a sentence."""
