"""What spends a token: redeem one or many, reissue, revoke."""
