"""What browsers get from a server: the client for pages (`headwater.js`), and pages that show what it does."""
