package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// goClient calls the API through the package client.
type goClient struct{ c *client.Client }

func (g goClient) Call(ctx context.Context, op string, args map[string]any) (any, error) {
	call, ok := goCalls()[op]
	if !ok {
		return nil, errNoCall
	}
	v, err := call(ctx, g.c, arguments(args))
	var e *client.Error
	if errors.As(err, &e) {
		return nil, &Failure{Code: string(e.Code), Reason: string(e.Reason), Status: e.Status, Text: e.Message}
	}
	if err != nil {
		return nil, err
	}
	return normal(v), nil
}

// arguments are a call's parameters.
type arguments map[string]any

// text returns a parameter as text, or "" if it is absent.
func (a arguments) text(name string) string {
	if v, ok := a[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

func (a arguments) id() string  { return a.text("id") }
func (a arguments) tag() string { return a.text("tag") }

func (a arguments) is(name string) bool { return a.text(name) == "true" }

// texts returns a list of texts.
func (a arguments) texts(name string) (out []string) {
	list, _ := a[name].([]any)
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func (a arguments) number(name string) int {
	n := 0
	_, _ = fmt.Sscan(a.text(name), &n)
	return n
}

// bodyOf decodes the body into a request type. Unknown fields are errors of the scenario.
func bodyOf[T any](a arguments) T {
	var v T
	b, err := json.Marshal(a["body"])
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		err = d.Decode(&v)
	}
	if err != nil {
		panic(fmt.Sprintf("body %v of the scenario: %v", a["body"], err))
	}
	return v
}

type goCall func(context.Context, *client.Client, arguments) (any, error)

// goCalls are the calls by operation.
func goCalls() map[string]goCall {
	all := map[string]goCall{}
	for _, some := range []map[string]goCall{
		daemonCalls(), snapshotCalls(), sandboxCalls(), guestCalls(), authorityCalls(), workspaceCalls(),
	} {
		for op, call := range some {
			all[op] = call
		}
	}
	return all
}

func daemonCalls() map[string]goCall {
	return map[string]goCall{
		"health": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
			return map[string]bool{"ok": true}, c.Health(ctx)
		},
		"ready": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
			return map[string]bool{"ready": true}, c.Ready(ctx)
		},
		"version":  func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Version(ctx) },
		"metrics":  func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Metrics(ctx) },
		"node":     func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return client.Node(ctx, c) },
		"capacity": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Capacity(ctx) },
		"drain": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Drain(ctx, bodyOf[api.DrainRequest](a))
		},
		"drain-status": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.DrainStatus(ctx) },
		"cancel-drain": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.CancelDrain(ctx) },
		"events":       goEvents,
		"audit": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			lines := []json.RawMessage{}
			req := client.AuditRequest{Action: a.text("action"), Limit: a.number("limit")}
			err := c.Audit(ctx, req, func(line []byte) error {
				lines = append(lines, bytes.Clone(line))
				return nil
			})
			return lines, err
		},
		"verify-audit": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.VerifyAudit(ctx) },
		"collect-layers": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.CollectLayers(ctx, bodyOf[api.CollectRequest](a).DryRun)
		},
		"list-images": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.ListImages(ctx, a.texts("filter")...)
		},
		"get-image": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Image(ctx, a.text("name"))
		},
		"head-image": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.HasImage(ctx, a.text("name"), a.text("digest"))
		},
		"delete-image": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.RemoveImage(ctx, a.text("name"))
		},
		"import-image": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.ImportImage(ctx, a.text("name"), a.text("digest"), strings.NewReader(a.text("content")))
		},
		"export-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			r, err := c.ExportSnapshot(ctx, a.tag())
			if err != nil {
				return nil, err
			}
			return nil, r.Close()
		},
		"import-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			if a.text("check") == "true" {
				return nil, c.CheckSnapshot(ctx, a.tag(), strings.NewReader(a.text("content")))
			}
			return c.ImportSnapshot(ctx, a.tag(), strings.NewReader(a.text("content")))
		},
		"copy-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			peers, _ := a["body"].(map[string]any)["peers"].([]any)
			var urls []string
			for _, p := range peers {
				urls = append(urls, fmt.Sprint(p))
			}
			return c.CopySnapshot(ctx, a.tag(), urls)
		},
		"list-receipts": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.ListReceipts(ctx, client.ReceiptFilter{
				Sandbox: a.text("sandbox"), Snapshot: a.text("snapshot"), Limit: a.number("limit"),
			})
		},
	}
}

// errEnough ends a stream after the requested number of elements.
var errEnough = errors.New("enough")

// goEvents returns the first events after an ID, as many as args asks for.
func goEvents(ctx context.Context, c *client.Client, a arguments) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	events, want := []api.Event{}, max(a.number("count"), 1)
	req := client.EventsRequest{All: true, Sandbox: a.text("sandbox"), Filters: a.texts("filter")}
	if kind := a.text("kind"); kind != "" {
		req.Kinds = strings.Split(kind, ",")
	}
	err := c.Events(ctx, req, func(e api.Event) error {
		events = append(events, e)
		if len(events) == want {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return events, err
}

func snapshotCalls() map[string]goCall {
	return map[string]goCall{
		"list-snapshots": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.ListSnapshots(ctx, a.texts("filter")...)
		},
		"snapshot-info": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Snapshot(ctx, a.tag())
		},
		"prune-snapshots": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.PruneSnapshots(ctx, c, bodyOf[api.PruneRequest](a).DryRun)
		},
		"label-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.LabelSnapshot(ctx, c, a.tag(), bodyOf[api.LabelsRequest](a))
		},
		"rename-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.RenameSnapshot(ctx, c, a.tag(), bodyOf[api.RenameRequest](a).To)
		},
		"create-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.CreateSnapshot(ctx, bodyOf[api.CreateSnapshotRequest](a), func(api.Step) {})
		},
		"delete-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.DeleteSnapshot(ctx, a.tag(), client.DeleteOptions{Cascade: a.is("cascade"), Force: a.is("force")})
		},
		"verify-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.VerifySnapshot(ctx, a.tag(), func(int64, int64) {})
		},
		"compact-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.CompactSnapshot(ctx, a.tag(), bodyOf[api.CompactRequest](a).To, func(api.Step) {})
		},
		"diff-snapshots": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.DiffSnapshots(ctx, a.tag(), a.text("other"), a.number("limit"))
		},
		"snapshot-receipt": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.SnapshotReceipt(ctx, a.tag())
		},
		"list-pools": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Pools(ctx) },
		"set-pool": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.SetPool(ctx, a.tag(), bodyOf[api.SetPoolRequest](a).Size)
		},
		"publish-snapshot": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.PublishSnapshot(ctx, a.tag(), bodyOf[api.PublishRequest](a).Public)
		},
	}
}

func sandboxCalls() map[string]goCall {
	return map[string]goCall{
		"fork": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			res, err := c.ForkEach(ctx, bodyOf[api.CreateSandboxesRequest](a), func(api.SandboxInfo) {})
			return res.Sandboxes, err
		},
		"list-sandboxes": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.ListSandboxes(ctx, a.texts("filter")...)
		},
		"get-sandbox": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Sandbox(ctx, a.id())
		},
		"kill-sandbox": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			if a.is("tree") {
				return nil, c.Kill(ctx, a.id(), client.KillTree)
			}
			return nil, c.Kill(ctx, a.id())
		},
		"branch": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Branch(ctx, a.id(), bodyOf[api.BranchRequest](a))
		},
		"rollback": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Rollback(ctx, a.id(), bodyOf[api.RollbackRequest](a).SnapshotTag)
		},
		"keep-best": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Keep(ctx, c, bodyOf[api.KeepRequest](a))
		},
		"promote": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Promote(ctx, c, a.id(), bodyOf[api.PromoteRequest](a))
		},
		"merge": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Merge(ctx, c, a.id(), bodyOf[api.MergeRequest](a))
		},
		"pause": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Life{Client: c}.Pause(ctx, a.id(), bodyOf[api.PauseRequest](a))
		},
		"resume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			if a["body"] != nil {
				return client.Life{Client: c}.ResumeFrom(ctx, a.id(), bodyOf[api.ResumeRequest](a).Peers)
			}
			return client.Life{Client: c}.Resume(ctx, a.id())
		},
		"label-sandbox": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.LabelSandbox(ctx, c, a.id(), bodyOf[api.LabelsRequest](a))
		},
		"set-life": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Life{Client: c}.SetLife(ctx, a.id(), bodyOf[api.LifeRequest](a))
		},
		"sandbox-receipt": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.SandboxReceipt(ctx, a.id())
		},
		"sandbox-memory": func(ctx context.Context, c *client.Client, a arguments) (any, error) { return c.Memory(ctx, a.id()) },
		"sandbox-console": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Console(ctx, a.id())
		},
		"get-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) { return c.Network(ctx, a.id()) },
		"set-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.SetNetwork(ctx, a.id(), bodyOf[api.SetNetworkRequest](a))
		},
		"network-flows": func(ctx context.Context, c *client.Client, a arguments) (any, error) { return c.Flows(ctx, a.id()) },
		"network-log": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			lines := []json.RawMessage{}
			err := c.NetworkLog(ctx, a.id(), false, func(line []byte) error {
				lines = append(lines, bytes.Clone(line))
				return nil
			})
			return lines, err
		},
	}
}

func guestCalls() map[string]goCall {
	return map[string]goCall{
		"ping": func(ctx context.Context, c *client.Client, a arguments) (any, error) { return c.Ping(ctx, a.id()) },
		"exec": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Exec(ctx, a.id(), bodyOf[api.ExecRequest](a))
		},
		"eval": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Eval(ctx, a.id(), bodyOf[api.EvalRequest](a))
		},
		"agent.exec": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			var out, errs bytes.Buffer
			opt := client.ExecOptions{Stdout: &out, Stderr: &errs, User: a.text("user")}
			for _, arg := range a["args"].([]any) {
				opt.Args = append(opt.Args, fmt.Sprint(arg))
			}
			if in := a.text("stdin"); in != "" {
				opt.Stdin = strings.NewReader(in)
			}
			end, err := c.ExecStream(ctx, a.id(), opt)
			return api.ExecResponse{Stdout: out.String(), Stderr: errs.String(), ExitCode: end.ExitCode}, err
		},
		"agent.write": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.Upload(ctx, a.id(), a.text("path"), a.text("user"), strings.NewReader(a.text("content")))
		},
		"agent.read": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			r, err := c.Download(ctx, a.id(), a.text("path"), a.text("user"))
			if err != nil {
				return nil, err
			}
			defer r.Close()
			b, err := io.ReadAll(r)
			return string(b), err
		},
		"connect-port-get": goPort,
	}
}

// goPort sends text to a port of the guest and returns the answer.
func goPort(ctx context.Context, c *client.Client, a arguments) (any, error) {
	conn, err := c.DialPort(ctx, a.id(), uint16(a.number("port")))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, a.text("send")); err != nil {
		return nil, err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}

func authorityCalls() map[string]goCall {
	return map[string]goCall{
		"list-keys": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.ListKeys(ctx) },
		"create-key": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.CreateKey(ctx, bodyOf[api.CreateKeyRequest](a))
		},
		"revoke-key": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.RevokeKey(ctx, a.text("key"))
		},
		"rotate-key": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.RotateKey(ctx, a.text("key"), bodyOf[api.RotateKeyRequest](a))
		},
		"list-services": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.ServicesOf(c, a.id()).List(ctx, time.Duration(a.number("wait_secs"))*time.Second)
		},
		"declare-service": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.ServicesOf(c, a.id()).Declare(ctx, a.text("service"), bodyOf[api.ServiceSpec](a))
		},
		"change-service": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.ServicesOf(c, a.id()).Change(ctx, a.text("service"), bodyText(a, "action"))
		},
		"remove-service": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, client.ServicesOf(c, a.id()).Remove(ctx, a.text("service"))
		},
		"service-log": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			var text strings.Builder
			err := client.ServicesOf(c, a.id()).Log(ctx, a.text("service"), -1, false, &text)
			return text.String(), err
		},
		"list-secrets": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Secrets().List(ctx) },
		"get-secret": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Secrets().Get(ctx, a.text("secret"))
		},
		"set-secret": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Secrets().Set(ctx, a.text("secret"), bodyOf[api.SetSecretRequest](a))
		},
		"list-volumes": func(ctx context.Context, c *client.Client, _ arguments) (any, error) { return c.Volumes().List(ctx) },
		"get-volume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Volumes().Get(ctx, a.text("volume"))
		},
		"create-volume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Volumes().Create(ctx, bodyOf[api.CreateVolumeRequest](a))
		},
		"snapshot-volume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Volumes().Snapshot(ctx, a.text("volume"), bodyOf[api.SnapshotVolumeRequest](a).Name)
		},
		"remove-volume": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.Volumes().Remove(ctx, a.text("volume"))
		},
		"list-private-networks": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
			return c.PrivateNetworks().List(ctx)
		},
		"get-private-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.PrivateNetworks().Get(ctx, a.text("network"))
		},
		"create-private-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.PrivateNetworks().Create(ctx, bodyOf[api.CreatePrivateNetworkRequest](a).Name)
		},
		"fork-private-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.PrivateNetworks().Fork(ctx, a.text("network"), bodyOf[api.ForkGroupRequest](a))
		},
		"remove-private-network": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.PrivateNetworks().Remove(ctx, a.text("network"))
		},
		"remove-secret": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, c.Secrets().Remove(ctx, a.text("secret"))
		},
		"tenant": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.Tenant(ctx, a.text("tenant"))
		},
		"set-tenant": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return c.SetTenant(ctx, a.text("tenant"), bodyOf[api.SetTenantRequest](a))
		},
	}
}

func workspaceCalls() map[string]goCall {
	one := func(call func(client.Workspaces, context.Context, string) (api.WorkspaceInfo, error)) goCall {
		return func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return call(client.Workspaces{Client: c}, ctx, a.text("workspace"))
		}
	}
	return map[string]goCall{
		"list-workspaces": func(ctx context.Context, c *client.Client, _ arguments) (any, error) {
			return client.Workspaces{Client: c}.List(ctx)
		},
		"create-workspace": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return client.Workspaces{Client: c}.Create(ctx, bodyOf[api.CreateWorkspaceRequest](a))
		},
		"get-workspace":     one(client.Workspaces.Get),
		"suspend-workspace": one(client.Workspaces.Suspend),
		"resume-workspace":  one(client.Workspaces.Resume),
		"delete-workspace": func(ctx context.Context, c *client.Client, a arguments) (any, error) {
			return nil, client.Workspaces{Client: c}.Delete(ctx, a.text("workspace"))
		},
	}
}
