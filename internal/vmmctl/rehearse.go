package vmmctl

import "encoding/json"

// Rehearse encodes and decodes what a restore will carry, so that the codec's
// tables are built and its code is touched before a fork waits for it.
func Rehearse() {
	body, err := json.Marshal(restoreBody{
		GenID: make([]byte, 16), Disks: []diskSpec{{ReadOnly: true}, {Own: true, Segments: 1}}, Memory: 1,
		tableRef: tableRef{Table: segmentSpec{Length: 1}.append(nil)},
	})
	if err != nil {
		panic("vmmctl: the restore request cannot be encoded: " + err.Error()) // a bug in its type
	}
	for _, v := range []any{message{ID: 1, Op: opRestore, Body: body}, message{ID: 1, Body: body}, RestoreResult{}} {
		b, _ := json.Marshal(v)
		var m message
		_ = json.Unmarshal(b, &m)
	}
	var r restoreBody
	_ = json.Unmarshal(body, &r)
}
