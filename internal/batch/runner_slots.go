package batch

import "time"

// slotUse measures how much of its slots a run used: slots are what the limits of
// the models under way allow, and a slot is used while its request is under way.
type slotUse struct {
	at          time.Time // of the last change; zero before the first line
	width       int       // slots since then
	busy, slots float64   // slot-seconds
}

// pass counts the time until now, in which inFlight slots were used.
func (u *slotUse) pass(now time.Time, inFlight int) {
	if u.at.IsZero() {
		u.at = now
	}
	d := now.Sub(u.at).Seconds()
	u.busy += d * float64(inFlight)
	u.slots += d * float64(max(u.width, inFlight))
	u.at = now
}

// percent is the share of the slots that was used; 0 when nothing was sent.
func (u *slotUse) percent() float64 {
	if u.slots == 0 {
		return 0
	}
	return 100 * u.busy / u.slots
}
