package config

import (
	"testing"
	"time"
)

// One setting never keeps a program from starting; and somebody is told.
func TestClaimStaleFallsBack(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		"":       3 * time.Minute,
		"30s":    30 * time.Second, // the floor
		"90s":    90 * time.Second,
		"1h":     time.Hour,
		"29.9s":  3 * time.Minute,
		"61m":    3 * time.Minute,
		"0":      3 * time.Minute,
		"-3m":    3 * time.Minute,
		"often":  3 * time.Minute,
		"180":    3 * time.Minute, // no unit
		" ":      3 * time.Minute,
		"1e400s": 3 * time.Minute,
	} {
		vars := env(map[string]string{claimStale: raw})
		s, err := Parse(vars)
		if err != nil || s.ClaimStale != want {
			t.Errorf("%q: %s, %v, want %s", raw, s.ClaimStale, err, want)
		}
		told := Fallbacks(vars)
		if fellBack := raw != "" && raw != "30s" && raw != "90s" && raw != "1h"; fellBack != (len(told) == 1) {
			t.Errorf("%q: told %v", raw, told)
		} else if fellBack {
			if f, ok := told[0].(*Fault); !ok || f.Name != claimStale || f.Value != raw || f.Allowed == "" {
				t.Errorf("%q: told %v", raw, told[0])
			}
		}
	}
	// What fell back is judged by what holds in its place.
	if _, err := Parse(env(map[string]string{claimStale: "often", "HOLDFAST_SUBMIT_TIMEOUT": "3m"})); err == nil {
		t.Error("a submit that may take as long as the default claim is accepted")
	}
	if _, err := Parse(env(map[string]string{claimStale: "30s", "HOLDFAST_SUBMIT_TIMEOUT": "30s"})); err == nil {
		t.Error("a claim that turns stale as its submit ends is accepted")
	}
	// Others are refused still, beside it.
	if _, err := Parse(env(map[string]string{claimStale: "often", "HOLDFAST_LEASE": "often"})); err == nil {
		t.Error("a bad lease is accepted")
	}
	if told := Fallbacks(env(map[string]string{"HOLDFAST_LEASE": "often"})); told != nil {
		t.Errorf("told %v of what Parse refuses", told)
	}
}
