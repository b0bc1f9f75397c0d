package inventory

import (
	"context"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
)

// Service implements forkd.agent.v1.Inventory.
type Service struct {
	Root string // normally /
	Proc string // normally /proc
	// Layers are the layers of the overlay at Root. The zero value means unknown.
	Layers Layers
}

var _ agentv1connect.InventoryHandler = Service{}

// batch is the largest number of entries in a part.
const batch = 256

// sender sends a part to the host.
type sender func(*agentv1.InventoryPart) error

// List implements forkd.agent.v1.Inventory.
func (s Service) List(ctx context.Context, req *connect.Request[agentv1.ListRequest],
	out *connect.ServerStream[agentv1.InventoryPart]) error {
	changes := req.Msg.GetChangesOnly() && s.Layers.Known()
	send := func(p *agentv1.InventoryPart) error {
		if err := ctx.Err(); err != nil { // the caller has left
			return err
		}
		p.ChangesOnly = changes
		return out.Send(p)
	}
	if req.Msg.GetProcessesOnly() {
		return s.tellProcesses(send)
	}
	return s.tell(changes, send)
}

// tellProcesses sends the processes without files and packages.
func (s Service) tellProcesses(send sender) error {
	cut, err := sendProcesses(s.Proc, send)
	if err != nil {
		return err
	}
	return send(&agentv1.InventoryPart{End: &agentv1.InventoryEnd{ProcessesCut: cut}})
}

func sendProcesses(proc string, send sender) (cut uint64, err error) {
	procs, cut := processes(proc)
	return cut, batches(procs, func(b []*agentv1.InventoryProcess) error {
		return send(&agentv1.InventoryPart{Processes: b})
	})
}

func (s Service) tell(changes bool, send sender) error {
	end := &agentv1.InventoryEnd{}
	walk := files
	if changes {
		walk = s.Layers.changes
	}
	var err error
	if end.Unreadable, err = sendFiles(s.Root, walk, send); err != nil {
		return err
	}
	if end.ProcessesCut, err = sendProcesses(s.Proc, send); err != nil {
		return err
	}
	pkgs, cut, err := packages(s.Root + statusFile)
	if err != nil {
		end.Unreadable++
	}
	end.PackagesCut = cut
	if err := batches(pkgs, func(b []*agentv1.InventoryPackage) error {
		return send(&agentv1.InventoryPart{Packages: b})
	}); err != nil {
		return err
	}
	return send(&agentv1.InventoryPart{End: end})
}

// walker calls visit for files in the order of the contract.
type walker func(root string, visit func(*agentv1.InventoryFile) error) (unreadable uint64, err error)

func sendFiles(root string, walk walker, send sender) (unreadable uint64, err error) {
	part := &agentv1.InventoryPart{}
	unreadable, err = walk(root, func(f *agentv1.InventoryFile) error {
		if part.Files = append(part.Files, f); len(part.Files) < batch {
			return nil
		}
		err := send(part)
		part.Files = part.Files[:0]
		return err
	})
	if err == nil && len(part.Files) > 0 {
		err = send(part)
	}
	return unreadable, err
}

func batches[T any](all []T, send func([]T) error) error {
	for len(all) > 0 {
		n := min(batch, len(all))
		if err := send(all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}
