package memory

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/upload"
)

// Table is the one table in process: a port per field, over the same items.
// Every operation is atomic. Safe for concurrent use.
type Table struct {
	Batches  *Batches
	Endings  *Endings
	Parts    *Parts
	Claims   *Claims
	Seals    *Seals
	Reaps    *Reaps
	Deaths   *Deaths
	Events   *Events
	Files    *Files
	Keys     *Keys
	Tenants  *Tenants
	Bridge   *Bridge
	Sends    *Sends
	Uploads  *UploadItems
	Receipts *Receipts

	items *items
}

// NewTable returns an empty table; f may be nil.
func NewTable(f *Faults) *Table { return newTable(rules{}, f) }

func newTable(r rules, f *Faults) *Table {
	i := &items{
		rules:   r,
		batches: map[name]batch.Batch{},
		parts:   map[name]map[int]batch.Part{},
		files:   map[name]batch.File{},
		deleted: map[name]batch.File{},
		keys:    map[string]access.Key{},
		tenants: map[string]access.Tenant{},
		bridges: map[bridge.Key]bridge.Row{},
		sends:   map[name]bridge.Send{},
		events:  map[name]map[string]batch.Event{},
	}
	return i.view(f)
}

// With is a view of the same items with faults of its own: another process.
func (t *Table) With(f *Faults) *Table { return t.items.view(f) }

// name is an id within a tenant.
type name struct{ tenant, id string }

// items is what the views of a table share.
type items struct {
	rules rules

	mu       sync.Mutex
	batches  map[name]batch.Batch
	parts    map[name]map[int]batch.Part // by the batch's name, then the number
	files    map[name]batch.File
	deleted  map[name]batch.File // files as they were
	keys     map[string]access.Key
	tenants  map[string]access.Tenant
	bridges  map[bridge.Key]bridge.Row
	sends    map[name]bridge.Send // by the request's hash
	uploads  map[name]upload.Upload
	events   map[name]map[string]batch.Event // by the batch's name, then the id
	receipts []access.Receipt
}

// port is what each port of one view has.
type port struct {
	*items
	faults *Faults
}

func (i *items) view(f *Faults) *Table {
	p := port{i, f}
	return &Table{
		Batches: &Batches{p}, Endings: &Endings{p}, Parts: &Parts{p}, Claims: &Claims{p}, Seals: &Seals{p}, Files: &Files{p}, Keys: &Keys{p}, Tenants: &Tenants{p}, Uploads: &UploadItems{p},
		Bridge: &Bridge{p}, Sends: &Sends{p}, Reaps: &Reaps{p}, Deaths: &Deaths{p}, Events: &Events{p}, Receipts: &Receipts{p},
		items: i,
	}
}

// SeedPart stores p exactly as given, whatever was there: the states that no
// port writes yet, and any a test needs to begin with.
func (t *Table) SeedPart(p batch.Part) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	t.items.storePart(p)
}

// SeedBatch stores b exactly as given, whatever was there.
func (t *Table) SeedBatch(b batch.Batch) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	t.items.batches[name{b.Tenant, b.ID}] = cloneBatch(b)
}

// Batch is a look at one batch that no fault can touch.
func (t *Table) Batch(tenant, id string) (batch.Batch, bool) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	b, ok := t.items.batches[name{tenant, id}]
	return cloneBatch(b), ok
}

// Part is a look at one part that no fault can touch.
func (t *Table) Part(key batch.PartKey) (batch.Part, bool) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	p, ok := t.items.parts[name{key.Tenant, key.Batch}][key.N]
	return clonePart(p), ok
}

// PartsOf is a look at all parts of a batch, by number.
func (t *Table) PartsOf(tenant, id string) []batch.Part {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	return t.items.partsOf(name{tenant, id})
}

// FilesOf is a look at all files of a tenant, by id.
func (t *Table) FilesOf(tenant string) (files []batch.File) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	for n, f := range t.items.files {
		if n.tenant == tenant {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b batch.File) int { return compare(a.ID, b.ID) })
	return files
}

func (i *items) batch(tenant, id string) (batch.Batch, error) {
	b, ok := i.batches[name{tenant, id}]
	if !ok {
		return batch.Batch{}, fmt.Errorf("batch %s: %w", id, batch.ErrNotFound)
	}
	return cloneBatch(b), nil
}

// write stores b one version higher and returns it as stored.
func (i *items) write(b batch.Batch) batch.Batch {
	b = cloneBatch(b)
	b.Ver++
	i.batches[name{b.Tenant, b.ID}] = b
	return cloneBatch(b)
}

func (i *items) part(key batch.PartKey) (batch.Part, error) {
	p, ok := i.parts[name{key.Tenant, key.Batch}][key.N]
	if !ok {
		return batch.Part{}, fmt.Errorf("part %d of %s: %w", key.N, key.Batch, batch.ErrNotFound)
	}
	return clonePart(p), nil
}

// writePart stores p one version higher and returns it as stored.
func (i *items) writePart(p batch.Part) batch.Part {
	p.Ver++
	return i.storePart(p)
}

func (i *items) storePart(p batch.Part) batch.Part {
	p = clonePart(p)
	n := name{p.Tenant, p.Batch}
	if i.parts[n] == nil {
		i.parts[n] = map[int]batch.Part{}
	}
	i.parts[n][p.N] = p
	return clonePart(p)
}

func (i *items) partsOf(n name) []batch.Part {
	parts := make([]batch.Part, 0, len(i.parts[n]))
	for _, number := range slices.Sorted(maps.Keys(i.parts[n])) {
		parts = append(parts, clonePart(i.parts[n][number]))
	}
	return parts
}
