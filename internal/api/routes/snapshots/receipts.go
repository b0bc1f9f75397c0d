package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/api/wire"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/receipt"
)

type receiptsInput struct {
	Sandbox  string `query:"sandbox" doc:"Only of this sandbox" maxLength:"64"`
	Snapshot string `query:"snapshot" doc:"Only of this snapshot; not with sandbox" maxLength:"64"`
	Op       string `query:"op" doc:"Only of this operation" enum:"fork,rollback,pause,resume,branch,snapshot"`
	Limit    int    `query:"limit" doc:"At most so many" minimum:"1" maximum:"1000" default:"100"`
}

type receiptRoutes struct{ engine routing.Part[roles.Receipts] }

func (s *receiptRoutes) add(rt *routing.Router) {
	tags := []string{"receipts"}
	routing.Route(rt, huma.Operation{
		OperationID: "sandbox-receipt", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/receipt", Tags: tags,
		Summary:     "The receipt of a sandbox's fork, or of its last rollback",
		Description: "Receipts stay when the sandbox is gone.",
		Errors:      []int{400, 401, 404},
	}, s.sandboxReceipt)
	routing.Route(rt, huma.Operation{
		OperationID: "snapshot-receipt", Method: http.MethodGet, Path: "/v1/snapshots/{tag}/receipt", Tags: tags,
		Summary:     "The newest receipt of a snapshot's tag",
		Description: "Receipts stay when the snapshot is gone.",
		Errors:      []int{400, 401, 404},
	}, s.snapshotReceipt)
	routing.Route(rt, huma.Operation{
		OperationID: "list-receipts", Method: http.MethodGet, Path: "/v1/receipts", Tags: tags,
		Summary: "List receipts, newest first", Errors: []int{400, 401},
	}, s.listReceipts)
}

func (s *receiptRoutes) sandboxReceipt(ctx context.Context, in *routing.IDPath) (*routing.Body[api.Receipt], error) {
	return s.receipt(ctx, receipt.OfSandbox, in.ID)
}

func (s *receiptRoutes) snapshotReceipt(ctx context.Context, in *routing.TagPath) (*routing.Body[api.Receipt], error) {
	return s.receipt(ctx, receipt.OfSnapshot, in.Tag)
}

func (s *receiptRoutes) receipt(ctx context.Context, kind receipt.Kind, of string) (*routing.Body[api.Receipt], error) {
	r, err := s.engine(ctx).Receipt(kind, of)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wireReceipt(r)), nil
}

func (s *receiptRoutes) listReceipts(ctx context.Context, in *receiptsInput) (*routing.Body[[]api.Receipt], error) {
	f := receipt.Filter{Op: receipt.Op(in.Op), Limit: in.Limit}
	switch {
	case in.Sandbox != "" && in.Snapshot != "":
		return nil, apierror.New(api.CodeInvalid, "", "sandbox and snapshot exclude each other")
	case in.Sandbox != "":
		f.Kind, f.Of = receipt.OfSandbox, sandbox.CanonicalID(in.Sandbox)
	case in.Snapshot != "":
		f.Kind, f.Of = receipt.OfSnapshot, in.Snapshot
	}
	all, err := s.engine(ctx).Receipts(f)
	if err != nil {
		return nil, err
	}
	return routing.Answer(wire.List(all, wireReceipt)), nil
}

func wireReceiptStep(s receipt.Step) api.ReceiptStep {
	return api.ReceiptStep{Name: s.Name, TookMS: wire.FromMicroseconds(s.TookUS), Bytes: s.Bytes}
}

func wireReceipt(r receipt.Receipt) api.Receipt {
	out := api.Receipt{
		ID: r.ID, Op: api.ReceiptOp(r.Op), Sandbox: r.Sandbox, Snapshot: r.Snapshot, AtUnixMS: r.At.UnixMilli(),
		TookMS: wire.FromMicroseconds(r.TookUS),
		Error:  r.Error, Recovered: r.Recovered, Cold: r.Cold, Before: r.Before,
		Parent: wireSource(r.Parent), Made: wireSource(r.Made), Guest: wireGuest(r.Guest),
		Steps: wire.List(r.Steps, wireReceiptStep),
	}
	for _, s := range r.Secrets {
		out.Secrets = append(out.Secrets, api.ReceiptSecret{Name: s.Name, Version: s.Version, Env: s.Variable})
	}
	if i := r.Image; i != nil {
		out.Image = &api.ReceiptImage{Name: i.Name, Digest: i.Digest}
	}
	if c := r.Capture; c != nil {
		out.Capture = &api.ReceiptCapture{
			Mode: c.Mode, Mechanism: c.Mechanism, PauseMS: wire.FromMicroseconds(c.PauseUS), Rounds: c.Rounds, Bytes: c.Bytes,
			PausedBytes: c.PausedBytes,
			PauseSteps:  wire.List(c.PauseSteps, wireReceiptStep),
		}
	}
	if v := r.VM; v != nil {
		out.VM = &api.ReceiptVM{
			Pooled: v.Pooled, Prepared: v.Prepared, MapMS: wire.FromMicroseconds(v.MapUS),
			StateMS:        wire.FromMicroseconds(v.StateUS),
			PopulatedPages: v.PopulatedPages,
		}
	}
	if i := r.Identity; i != nil {
		out.Identity = &api.ReceiptIdentity{
			Index: i.Index, Parent: i.Parent, Hostname: i.Hostname, MachineID: i.MachineID, GenerationID: i.GenerationID,
			EntropyBytes: i.EntropyBytes, Way: i.Way,
		}
	}
	return out
}

func wireSource(s *receipt.Source) *api.ReceiptSource {
	if s == nil {
		return nil
	}
	return &api.ReceiptSource{Tag: s.Tag, ContentHash: s.ContentHash,
		Layers: wire.List(s.Layers, func(l receipt.Layer) api.ReceiptLayer {
			return api.ReceiptLayer{ID: l.ID, Kind: l.Kind, Bytes: l.Bytes, Digest: l.Digest}
		})}
}

func wireGuest(g *receipt.Guest) *api.ReceiptGuest {
	if g == nil {
		return nil
	}
	return &api.ReceiptGuest{
		KernelReseeded: g.KernelReseeded, RandomDigest: g.RandomDigest, BootID: g.BootID,
		ClockStepMS: wire.FromMicroseconds(g.ClockStepUS),
		TookMS:      wire.FromMicroseconds(g.TookUS),
		Steps: wire.List(g.Steps, func(s receipt.GuestStep) api.ReceiptGuestStep {
			return api.ReceiptGuestStep{Name: s.Name, Done: s.Done, Error: s.Error, TookMS: wire.FromMicroseconds(s.TookUS)}
		}),
		Interpreters: wire.List(g.Interpreters, func(i receipt.Interpreter) api.ReceiptInterpreter {
			return api.ReceiptInterpreter{Language: i.Language, Reseeded: wire.NotNil(i.Reseeded), Later: i.Later,
				Error:  i.Error,
				TookMS: wire.FromMicroseconds(i.TookUS)}
		}),
		Hooks: wire.List(g.Hooks, func(h receipt.Hook) api.ReceiptHook {
			return api.ReceiptHook{Name: h.Name, ExitCode: h.ExitCode, Error: h.Error, TookMS: wire.FromMicroseconds(h.TookUS)}
		}),
	}
}
