package wire

import (
	"encoding/json"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Prewarm encodes and decodes a typical restore request. This builds the codec's tables and loads
// its code before a fork waits for it.
func Prewarm() {
	r := Request{Op: OpRestore, table: appendExtent(nil, extent.Extent{Length: 1}, 0)}
	r.body = restoreBody{
		Memory: 1, State: 1, Disks: []diskBody{{File: 2, ReadOnly: true}, {Overlay: 3, Base: 1}}, GenID: make([]byte, 16),
	}
	m, _, err := r.Message()
	if err != nil {
		panic("wire: the restore request cannot be encoded: " + err.Error()) // a bug in its type
	}
	for _, v := range []any{m, Message{ID: 1, Body: m.Body}, vmm.RestoreResult{}} {
		b, _ := json.Marshal(v)
		var back Message
		_ = json.Unmarshal(b, &back)
	}
	_, _ = ReadRestore(m, nil) // returns an error, since there are no files
}
