package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// Results are what workers leave of a batch that is over: parts that are done, and
// chunks. Both are made as they are read and so are never held, but for 40 bytes a
// chunk. The same Results have the same bytes always.
type Results struct {
	Lines, PartLines, ChunkLines int
	Reply                        int // bytes of each reply's body

	receipt [2]string // before and behind the line's number
	pad     string
	proofs  []proof // by part and chunk
}

// proof is what of a chunk takes reading it to know.
type proof struct {
	sum   [sha256.Size]byte
	bytes int64
}

// NewResults returns the results of so many lines in parts and chunks as a Runner
// makes them by default, with replies of that size. One line in 50 failed. Every
// chunk is made once for it.
func NewResults(lines, reply int) (*Results, error) {
	r := &Results{Lines: lines, PartLines: 500, ChunkLines: max(min(100, chunkBytes/reply), 1), Reply: reply}
	receipt, err := json.Marshal(batch.Receipt{
		Time: time.Date(2026, 8, 21, 12, 0, 0, 123e6, time.UTC), Tenant: tenant, Batch: id, Line: 1 << 40, CustomID: []byte(`"request-0000000"`),
		OnBehalfOf: "bench", Worker: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Attempt: 1, Model: "sim", Status: 200,
		Usage:       &openai.Usage{InputTokens: 12, OutputTokens: 900, TotalTokens: 912},
		RequestHash: strings.Repeat("0", 64), ReplyHash: strings.Repeat("1", 64),
	})
	if err != nil {
		return nil, err
	}
	before, behind, _ := strings.Cut(string(receipt), fmt.Sprint(int64(1)<<40))
	r.receipt = [2]string{before, behind}
	r.pad = strings.Repeat("the quick brown fox jumps over the lazy dog; ", reply/45+1)[:reply]
	r.proofs = make([]proof, 0, r.Count()*((r.PartLines+r.ChunkLines-1)/r.ChunkLines))
	for n := range r.Count() {
		p := r.outline(n)
		for c := range r.chunks(p) {
			sum, one := sha256.New(), proof{}
			if one.bytes, err = io.Copy(sum, r.Open(p, c)); err != nil {
				return nil, err
			}
			sum.Sum(one.sum[:0])
			r.proofs = append(r.proofs, one)
		}
	}
	return r, nil
}

// chunkBytes of results are a chunk at most.
const chunkBytes = 8 << 20

// record is a line's, but for the reply's text, which belongs before the last
// len(behind) bytes.
func (r *Results) record(line int64, into *batch.Record) {
	into.Line, into.OK = line, line%50 != 49
	into.Receipt = fmt.Appendf(into.Receipt[:0], "%s%d%s", r.receipt[0], line, r.receipt[1])
	into.Result = fmt.Appendf(into.Result[:0], `{"id":"batch_req_%026d","custom_id":"request-%07d","response":{"status_code":200,"request_id":"req_1","body":{"t":"`, line, line)
	into.Result = append(into.Result, behind[:len(behind)-1]...)
}

const behind = `"}},"error":null}` + "\n"

// chunkOf is the chunk of a part that the part's i-th line is in: a quarter of the
// lines come late, by as many lines as are in flight.
func (r *Results) chunkOf(i, chunks int) int {
	late := max(32/r.ChunkLines, 1)
	return min(i/r.ChunkLines+int(uint32(i)*2654435761>>30)/3*late, chunks-1)
}

// Count is how many parts there are.
func (r *Results) Count() int { return (r.Lines + r.PartLines - 1) / r.PartLines }

// chunks is how many chunks a part has.
func (r *Results) chunks(p batch.Part) int { return (p.Lines + r.ChunkLines - 1) / r.ChunkLines }

// outline is part n without its chunks.
func (r *Results) outline(n int) batch.Part {
	first := n * r.PartLines
	p := batch.Part{PartKey: batch.PartKey{Tenant: tenant, Batch: id, N: n}, State: batch.Done,
		FirstLine: int64(first), Lines: min(r.PartLines, r.Lines-first)}
	p.Processed = p.Lines
	return p
}

// Part is part n, with its chunks.
func (r *Results) Part(n int) batch.Part {
	p := r.outline(n)
	chunks := r.chunks(p)
	p.Chunks = make([]batch.Chunk, chunks)
	before := n * ((r.PartLines + r.ChunkLines - 1) / r.ChunkLines)
	for c := range p.Chunks {
		one := r.proofs[before+c]
		p.Chunks[c] = batch.Chunk{Key: fmt.Sprintf("%s/parts/%s/%d/%s-%d.jsonl", tenant, id, n, strings.Repeat("A", 26), c),
			Bytes: one.bytes, Sum: hex.EncodeToString(one.sum[:])}
	}
	for i := range p.Lines {
		chunk := &p.Chunks[r.chunkOf(i, chunks)]
		if chunk.N++; (p.FirstLine+int64(i))%50 != 49 {
			chunk.OK++
		} else {
			chunk.Err++
		}
	}
	return p
}

// Parts are all parts of the batch, with their chunks.
func (r *Results) Parts() []batch.Part {
	parts := make([]batch.Part, r.Count())
	for n := range parts {
		parts[n] = r.Part(n)
	}
	return parts
}

// Open reads chunk c of a part.
func (r *Results) Open(p batch.Part, c int) io.Reader {
	return &made{results: r, part: p, chunk: c, chunks: r.chunks(p)}
}

// made is a chunk while it is read.
type made struct {
	results       *Results
	part          batch.Part
	chunk, chunks int
	next          int // line within the part
	record        batch.Record
	stored        []byte
	left          [3]string // of the record: what is before the reply's text, that, what is behind
}

func (m *made) Read(b []byte) (int, error) {
	for i := range m.left {
		if len(m.left[i]) > 0 {
			n := copy(b, m.left[i])
			m.left[i] = m.left[i][n:]
			return n, nil
		}
	}
	for m.next < m.part.Lines && m.results.chunkOf(m.next, m.chunks) != m.chunk {
		m.next++
	}
	if m.next == m.part.Lines {
		return 0, io.EOF
	}
	m.results.record(m.part.FirstLine+int64(m.next), &m.record)
	m.next++
	m.stored = m.record.Append(m.stored[:0])
	// The text is everybody's: a chunk that is open holds none of it.
	m.left = [3]string{string(m.stored[:len(m.stored)-len(behind)]), m.results.pad, behind}
	return m.Read(b)
}
