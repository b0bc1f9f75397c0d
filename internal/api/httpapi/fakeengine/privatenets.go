package fakeengine

import (
	"fmt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// joinNetwork makes the children of a fork members of a private network. The lock is held.
func joinNetwork(e *Engine, req sandbox.ForkRequest) (map[string]sandbox.Member, error) {
	if req.Join == nil {
		return nil, nil
	}
	if e.Networks == nil {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "", "this engine has no private networks")
	}
	var ids []string
	for i := 1; i <= req.N; i++ {
		ids = append(ids, newID(e.NodeKey, e.forks, i))
	}
	members, err := e.Networks.Join(req.Owner, *req.Join, ids)
	if err != nil {
		return nil, fmt.Errorf("fork %s: %w", req.Tag, err)
	}
	return members, nil
}

func memberOf(all map[string]sandbox.Member, id string) *sandbox.Member {
	m, ok := all[id]
	if !ok {
		return nil
	}
	return &m
}

// leaveNetwork ends the membership of an ended sandbox.
func leaveNetwork(e *Engine, i sandbox.Info) {
	if i.Network.Member != nil {
		e.Networks.Leave(i.ID)
	}
}
