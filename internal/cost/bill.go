package cost

import "math"

// Usage is how much of each kind was used. The zero value of a kind is none.
type Usage map[Kind]float64

// Add counts n more of a kind.
func (u Usage) Add(k Kind, n float64) { u[k] += n }

// Merge counts all of other, times times.
func (u Usage) Merge(other Usage, times float64) {
	for k, n := range other {
		u[k] += n * times
	}
}

// Line is one kind on a bill.
type Line struct {
	Kind     Kind    `json:"kind"`
	Name     string  `json:"name"`
	Quantity float64 `json:"quantity"`
	Unit     string  `json:"unit"`
	Price    float64 `json:"price"` // of one unit, in dollars
	Dollars  float64 `json:"dollars"`
	// Floor is what of Dollars no implementation with these settings could save.
	Floor float64 `json:"floor"`
}

// Bill is what was used, priced.
type Bill struct {
	Region string  `json:"region"`
	Date   string  `json:"prices_of"`
	Lines  []Line  `json:"kinds"`
	Total  float64 `json:"total"`
	Floor  float64 `json:"floor"`
}

// Price reckons a usage, and beside it its floor; a nil floor is none. Kinds of
// which nothing was used are left out.
func (u Usage) Price(floor Usage) Bill {
	b := Bill{Region: Region, Date: Date}
	for _, p := range Prices {
		n, least := u[p.Kind], floor[p.Kind]
		if n == 0 && least == 0 {
			continue
		}
		l := Line{p.Kind, p.Name, n, p.Unit, p.Each(), n * p.Each(), least * p.Each()}
		b.Lines = append(b.Lines, l)
		b.Total += l.Dollars
		b.Floor += l.Floor
	}
	return b
}

// Line returns the bill's line of a kind, the zero Line if it has none.
func (b Bill) Line(k Kind) Line {
	for _, l := range b.Lines {
		if l.Kind == k {
			return l
		}
	}
	return Line{}
}

// Work is what a batch has to have done, whoever does it.
type Work struct {
	Lines int64
	Parts int
	// Waiting is the time of all upstream requests in sum, in milliseconds.
	Waiting float64
	// Slots is K, requests in flight at once, and Memory the work function's, in MB.
	Slots  int
	Memory float64
	// CheckpointLines is C.
	CheckpointLines int
	// Wide: the parts are children of a Distributed Map, each one a transition more.
	Wide bool
}

// Floor is what no implementation of the same promises with the same settings
// could do without:
//
//	compute      every slot in use from the first moment to the last: waiting / K
//	object puts  one chunk for every C lines, because a crash may repeat no more
//	writes       of a part: it is there, it is claimed, a checkpoint for each
//	             chunk, the last of which makes it done; a unit each, and no index
//	transitions  one for a part's wait, one more where it is a child of its own
//	queue        a part's message is sent, received and deleted
func (w Work) Floor() Usage {
	u := Usage{}
	if w.Slots > 0 {
		u.Add(Compute, GBSeconds(w.Memory, w.Waiting)/float64(w.Slots))
	}
	chunks := float64(w.Parts)
	if w.Parts > 0 && w.CheckpointLines > 0 {
		perPart := float64(w.Lines) / float64(w.Parts)
		chunks = math.Max(chunks, math.Ceil(perPart/float64(w.CheckpointLines))*float64(w.Parts))
	}
	parts := float64(w.Parts)
	u.Add(ObjectPuts, chunks)
	u.Add(TableWrites, 2*parts+chunks)
	u.Add(QueueRequests, 3*parts)
	u.Add(Transitions, parts)
	if w.Wide {
		u.Add(Transitions, parts)
	}
	return u
}
