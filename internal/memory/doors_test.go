package memory_test

import (
	"context"
	"testing"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
	"holdfast/internal/storetest"
)

func TestInputs(t *testing.T) {
	storetest.RunInputs(t, func(storetest.T) storetest.InputsPorts {
		s := memory.NewInputs(nil)
		return storetest.InputsPorts{
			Inputs: s, Bucket: "inputs",
			Put: func(_ context.Context, key string, data []byte, metadata map[string]string) error {
				s.Store("inputs", key, data, metadata, time.Now())
				return nil
			},
			Delete: func(_ context.Context, key, version string) error {
				s.Remove("inputs", key, version)
				return nil
			},
		}
	})
}

func TestLetters(t *testing.T) {
	bubbles(t, storetest.LettersCases(), func(storetest.T) storetest.LettersPorts {
		q, seen := memory.NewLetters(nil), 0
		return storetest.LettersPorts{
			Postponer: q, Dead: q,
			Post: func(_ context.Context, body string) error {
				q.Post(body)
				return nil
			},
			Receive: func(context.Context) ([]bridge.Letter, error) { return q.Receive(10), nil },
			Look: func(context.Context) (looked []storetest.LookedAt, err error) {
				for _, l := range q.Dead()[seen:] {
					seen++
					looked = append(looked, storetest.LookedAt(l))
				}
				return looked, nil
			},
		}
	})
}
