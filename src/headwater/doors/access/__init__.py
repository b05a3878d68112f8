"""Guards in front of the routes: who may speak to this server at all, who it is, and how often.

    request ─► browser.py  is it for this server, and from a page of ours?      403
            ─► reception.py  who is it? (tokens.py, json_web_tokens.py)         401, and 429 for guessing
            ─► rates.py  not too often?                                         429
            ─► routes, with the principal

`guard.py` puts them together from `settings.py`. A guard wraps a handler and is one itself, so each stands alone.
"""
