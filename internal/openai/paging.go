package openai

import (
	"net/url"
	"strconv"
)

// Page is what a list request asks for.
type Page struct {
	Limit     int    // objects wanted, at least 1
	After     string // id of the last object already seen; empty for the first page
	Ascending bool   // oldest first; the default is newest first
}

// maxCursor bounds an after, in bytes; no id is longer.
const maxCursor = 256

// ParsePage reads limit, after and order from a list request. An absent limit is
// defaultLimit; one that is no integer from 1 to maxLimit is refused with
// invalid_limit rather than bent, and so is an order other than asc or desc. Whether
// after names anything is for the store to say (see [InvalidCursor]).
func ParsePage(query url.Values, defaultLimit, maxLimit int) (Page, error) {
	p := Page{Limit: defaultLimit, After: query.Get("after")}
	if s := query.Get("limit"); query.Has("limit") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxLimit {
			return Page{}, Invalid("invalid_limit", "limit", "Invalid limit %s: it must be an integer from 1 to %d.", clip(s), maxLimit)
		}
		p.Limit = n
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		p.Ascending = true
	default:
		return Page{}, Invalid("invalid_order", "order", "Invalid order %s: it must be asc or desc.", clip(order))
	}
	if len(p.After) > maxCursor {
		return Page{}, InvalidCursor(p.After)
	}
	return p, nil
}
