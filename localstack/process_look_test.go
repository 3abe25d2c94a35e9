package localstack

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Each look is what /proc shows at one moment: the living processes by id, each with its environment, null for one that has none to show
// (in the middle of an exec, or dying). The looks are played to process.py's own _end; it prints whom it signalled and how many looks it took.
const played = `
import json, os, sys, types
import process
looks, signalled, now, at = json.loads(sys.argv[1]), [], [0.0], [0]
def look():
    return looks[min(at[0], len(looks) - 1)]
def processes():
    at[0] += 1
    return [process.Process(int(pid), int(pid), "boot 1", False) for pid in look()]
process.processes = processes
process._environment = lambda pid: None if look()[str(pid)] is None else look()[str(pid)].encode()
process.os = types.SimpleNamespace(path=os.path, getpid=os.getpid, kill=lambda pid, number: signalled.append(pid))
process.time = types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
at[0] = -1
ended, left = process._end({"pid": 7, "started": "boot 0", "marker": "m"}, 0)
print(json.dumps({"ended": ended, "left": left, "signalled": sorted(set(signalled)), "looks": at[0] + 1}))
`

// A process belongs to the stopped one by what its environment says, and twice in its life a living process has none to show. Stop must neither
// take such a moment for its end nor wait for a stranger that never shows one.
func TestStopWaitsForWhatShowsNothing(t *testing.T) {
	const ours = "LOCAL_AWS_PROCESS=m"
	type look map[string]any
	for name, c := range map[string]struct {
		looks     []look
		signalled string
		left      string
		atLeast   int
		atMost    int
	}{
		"dying slowly":          {[]look{{"40": ours}, {"40": nil}, {"40": nil}, {"40": nil}, {}}, "[40]", "[]", 5, 5},
		"in the midst of exec":  {append(append([]look{{"40": nil}, {"40": nil}}, slices.Repeat([]look{{"40": ours}}, 8)...), look{}), "[40]", "[]", 11, 20},
		"a stranger in exec":    {[]look{{"40": nil}, {"40": nil}, {"40": "HOME=/"}}, "[]", "[]", 3, 4},
		"a stranger for ever":   {[]look{{"40": nil}}, "[]", "[]", 20, 200},
		"gone at the first":     {[]look{{"40": "HOME=/"}}, "[]", "[]", 2, 2},
		"survives every signal": {[]look{{"40": ours}}, "[40]", "[40]", 50, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(c.looks)
			if err != nil {
				t.Fatal(err)
			}
			output, status := command(t, "python3", "-c", played, string(text))
			var got struct {
				Ended           int
				Left, Signalled json.RawMessage
				Looks           int
			}
			if err := json.Unmarshal([]byte(output), &got); err != nil || status != 0 {
				t.Fatalf("exit %d, %v: %s", status, err, output)
			}
			if string(got.Signalled) != c.signalled || string(got.Left) != c.left {
				t.Errorf("signalled %s and left %s, want %s and %s", got.Signalled, got.Left, c.signalled, c.left)
			}
			if got.Looks < c.atLeast || got.Looks > c.atMost {
				t.Errorf("%d looks, want %d to %d: %s", got.Looks, c.atLeast, c.atMost, strings.TrimSpace(output))
			}
		})
	}
}
