package storetest

import (
	"time"

	"holdfast/internal/lease"
)

// bridgeGiveBack: who gives back is still the owner, who may confirm, until the first
// thief; and its row is due when it was.
func bridgeGiveBack(t T, p BridgePorts) {
	r := row(token())
	r.GivenBack = false
	succeeds(t, "claim", p.Store.Claim(t.Context(), r))
	succeeds(t, "give back", p.Store.GiveBack(t.Context(), r.Key, r.Token, at(-time.Hour)))
	given := r
	given.ClaimedAt, given.GivenBack, given.Ver = at(-time.Hour), true, 2
	keeps(t, p, "stored", given)
	_, err := p.Store.Steal(t.Context(), r.Key, 2, at(-time.Hour), token(), at(2*stale), at(stale))
	refuses(t, "steal what isn't stale yet", err, lease.ErrLost)
	tok := token()
	got := value(p.Store.Steal(t.Context(), r.Key, 2, at(-time.Minute), tok, at(2*stale), at(stale)))(t, "steal, long before its time")
	same(t, "stolen", got, stolen(given, tok))

	r = claimed(t, p, token())
	succeeds(t, "give back", p.Store.GiveBack(t.Context(), r.Key, r.Token, at(0)))
	r.GivenBack, r.Ver = true, 2
	succeeds(t, "confirm, after all", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	keeps(t, p, "stored", confirmed(r, "batch_1"))
}

func bridgeGiveBackAgain(t T, p BridgePorts) {
	r := claimed(t, p, token())
	for range 2 {
		succeeds(t, "give back", p.Store.GiveBack(t.Context(), r.Key, r.Token, at(-time.Hour)))
	}
	got, _ := p.Look(t, r.Key)
	r.ClaimedAt, r.Ver = at(-time.Hour), got.Ver
	same(t, "stored", got, r)
}

func bridgeGiveBackForeign(t T, p BridgePorts) {
	r := claimed(t, p, token())
	refuses(t, "give back", p.Store.GiveBack(t.Context(), r.Key, token(), at(-time.Hour)), lease.ErrLost)
	keeps(t, p, "stored", r)
	got := value(steal(t, p, r, 1, token()))(t, "steal")
	refuses(t, "give back by who was robbed", p.Store.GiveBack(t.Context(), r.Key, r.Token, at(-time.Hour)), lease.ErrLost)
	keeps(t, p, "the thief's", got)
}

func bridgeGiveBackConfirmed(t T, p BridgePorts) {
	r := claimed(t, p, token())
	succeeds(t, "confirm", p.Store.Confirm(t.Context(), r.Key, r.Token, "batch_1", expires()))
	refuses(t, "give back", p.Store.GiveBack(t.Context(), r.Key, r.Token, at(-time.Hour)), lease.ErrLost)
	keeps(t, p, "stored", confirmed(r, "batch_1"))
}
