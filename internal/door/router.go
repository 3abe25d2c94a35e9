package door

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"holdfast/internal/bridge"
)

// Router is one bridge.Door for a queue that both doors' letters come by.
type Router struct {
	drops    bridge.Door
	messages bridge.Door
}

var _ bridge.Door = Router{}

// NewRouter returns a Router to these two.
func NewRouter(drops, messages bridge.Door) Router { return Router{drops, messages} }

// Open is bridge.Door.Open of the letter's door.
func (r Router) Open(ctx context.Context, l bridge.Letter, now time.Time) (bridge.Request, error) {
	return r.of(l).Open(ctx, l, now)
}

// Refuse is bridge.Door.Refuse of the letter's door.
func (r Router) Refuse(ctx context.Context, l bridge.Letter, req bridge.Request, why error, now time.Time) error {
	return r.of(l).Refuse(ctx, l, req, why, now)
}

// Same is bridge.Door.Same of the letter's door.
func (r Router) Same(l bridge.Letter, req bridge.Request, found bridge.Row) bool {
	return r.of(l).Same(l, req, found)
}

// unchecked leaves it to the one reader who judges a letter whether it has a name twice:
// to find that out costs more than all else about a large one.
var unchecked = jsontext.AllowDuplicateNames(true)

// of tells an event by a member that every event has, or by where it says that it
// comes from. What has the version of a message is one all the same: it may have
// members that nobody reads, and no event has that. Whatever is no JSON is a message:
// its door says what is wrong with it.
func (r Router) of(l bridge.Letter) bridge.Door {
	var event struct {
		V          jsontext.Value `json:"v"`
		Source     jsontext.Value `json:"source"`
		DetailType jsontext.Value `json:"detail-type"`
	}
	if json.Unmarshal(l.Body, &event, unchecked) == nil && len(event.V) == 0 && (len(event.DetailType) > 0 || string(event.Source) == `"`+s3+`"`) {
		return r.drops
	}
	return r.messages
}
