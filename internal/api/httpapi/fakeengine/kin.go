package fakeengine

import "github.com/forkd/forkd/internal/domain/sandbox"

// Adopt makes a sandbox a guest fork of another sandbox.
func Adopt(e *Engine, id, parent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	root := e.entries[parent].info.Kin.RootOf(parent)
	e.entries[id].info.Kin = sandbox.Kin{MayFork: true, Parent: parent, Root: root, Depth: 1}
}
