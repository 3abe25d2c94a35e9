package main

import (
	"fmt"
	"strings"
	"time"
)

// summary is the whole run.
type summary struct {
	OK       bool      `json:"ok"`
	Seed     uint64    `json:"seed"`
	Lease    float64   `json:"lease_seconds"`
	Bound    int       `json:"repeats_bound"` // C + K, for each part in hand
	Kills    int       `json:"kills"`
	Stops    int       `json:"stops"`
	Lines    int       `json:"lines"`
	Lost     int       `json:"lost"`
	Doubled  int       `json:"doubled"`
	Wrong    int       `json:"wrong"`
	Blamed   int       `json:"blamed"`
	Dead     int       `json:"dead_parts"`
	Repeats  float64   `json:"repeats_per_kill"`
	Worst    int       `json:"most_repeats_of_a_part"`
	Recovery float64   `json:"longest_recovery_seconds"` // from a kill until the part was given back or stolen
	Progress float64   `json:"longest_wait_seconds"`     // ... until its next progress, the queue included
	Reaper   tally     `json:"reaper"`
	Cancel   *ending   `json:"cancel,omitempty"`
	Doors    *doors    `json:"doors,omitempty"`
	Jobs     *external `json:"external_jobs,omitempty"`
	Batches  []verdict `json:"batches"`
	Blows    []told    `json:"blows"`
	Faults   []string  `json:"faults,omitempty"` // those that are of no batch

	timed bool // a recovery that takes too long is a fault
}

// told is a blow as the report has it.
type told struct {
	Fate     fate    `json:"fate"`
	Place    string  `json:"place"`
	Parts    int     `json:"parts_in_hand"`
	Lost     int     `json:"lines_to_be_sent_again"`
	Recovery float64 `json:"recovery_seconds,omitempty"` // of its slowest part that came back before it was struck again
	Progress float64 `json:"progress_seconds,omitempty"` // the same, until its next progress
}

// recoveryBound is what a part may need beyond its lease from a kill until it is
// given back or stolen.
const recoveryBound = 60 * time.Second

// blows sums up what was dealt.
func (s *summary) blows(all []*blow) {
	again := 0
	for _, b := range all {
		one := told{Fate: b.fate, Place: b.place, Parts: len(b.held)}
		for _, h := range b.held {
			one.Lost += h.lost
			one.Recovery = max(one.Recovery, h.freed.Seconds())
			one.Progress = max(one.Progress, h.recovered.Seconds())
			s.Worst = max(s.Worst, h.lost)
			if h.lost > s.Bound {
				s.Faults = append(s.Faults, fmt.Sprintf("%d lines of part %d were begun and not kept, above %d", h.lost, h.part.N, s.Bound))
			}
		}
		if b.fate == killed {
			s.Kills++
			again += one.Lost
			s.Recovery = max(s.Recovery, one.Recovery)
			s.Progress = max(s.Progress, one.Progress)
		} else {
			s.Stops++
		}
		s.Blows = append(s.Blows, one)
	}
	if s.Kills > 0 {
		s.Repeats = float64(again) / float64(s.Kills)
	}
	if most := s.Lease + recoveryBound.Seconds(); s.timed && s.Recovery > most {
		s.Faults = append(s.Faults, fmt.Sprintf("a part came back after %.1f s, above %.0f", s.Recovery, most))
	}
}

// judge sums up the batches. Anything that was promised and not kept makes the run
// a failure, not only what the last line counts.
func (s *summary) judge() {
	faults := len(s.Faults)
	for _, v := range s.Batches {
		s.Lines += v.Lines
		s.Lost += v.Lost
		s.Doubled += v.Doubled
		s.Wrong += v.Wrong
		s.Blamed += len(v.Blamed)
		s.Dead += v.Dead
		faults += len(v.Faults)
	}
	s.OK = s.Lost == 0 && s.Doubled == 0 && s.Wrong == 0 && faults == 0
}

// String is the report's end: the faults that are of no batch, and one line.
func (s *summary) String() string {
	var b strings.Builder
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "FAULT %s\n", f)
	}
	if c := s.Cancel; c != nil {
		fmt.Fprintf(&b, "cancel: %d queued parts ended in %.1f s while %d parts of another tenant waited\n", c.Parts, c.Seconds, c.Backlog)
	}
	if d := s.Doors; d != nil {
		fmt.Fprintf(&b, "doors: %s\n", d)
	}
	if e := s.Jobs; e != nil {
		fmt.Fprintf(&b, "external jobs: %d requests, %d deliveries, %d posts (%d answers lost, %d refused): %d jobs\n", e.Requests, e.Deliveries, e.Service.Posts, e.Service.Lost, e.Service.Refused, e.Service.Jobs)
	}
	fmt.Fprintf(&b, "reaper: %d reaped, %d sent again, %d executions started, %d only to finish; %d zombies woken\n",
		s.Reaper.Reaped, s.Reaper.Resent, s.Reaper.Started, s.Reaper.Finished, s.Stops)
	fmt.Fprintf(&b, "chaos: %d kills, %d batches, %d lines, %d lost, %d doubled, %d blamed, %d dead parts, %.1f repeats per kill (%d of a part at most, bound %d), longest recovery %.1f s (%.1f s to the next progress, the queue included)",
		s.Kills, len(s.Batches), s.Lines, s.Lost, s.Doubled, s.Blamed, s.Dead, s.Repeats, s.Worst, s.Bound, s.Recovery, s.Progress)
	return b.String()
}
