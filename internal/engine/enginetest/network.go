package enginetest

import (
	"reflect"
	"slices"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

var (
	public = netpolicy.Spec{Default: netpolicy.Public}
	rules  = netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"example.org:443"}}
	broken = netpolicy.Spec{Allow: []string{"example.org:99999"}}
)

// forkNet makes one sandbox with a policy, or with the snapshot's if policy is nil.
func (s suite) forkNet(tag string, policy *netpolicy.Spec) sandbox.Info {
	s.t.Helper()
	r, err := s.Engine.Fork(s.t.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Network: policy})
	s.must(err)
	s.must(r.Children[0].Err)
	return r.Children[0].Info
}

func (s suite) wantPolicy(id string, want sandbox.PolicyName) {
	s.t.Helper()
	n, err := s.Engine.Network(id)
	if err != nil || n.Policy() != want {
		s.t.Errorf("policy of %s: %+v, %v, want %s", id, n, err, want)
	}
}

// granting is a policy with a bucket and a proxy.
var granting = netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"s3.example.org:443"},
	Proxy: &netpolicy.ProxyRule{URL: "http://93.184.216.37:3128", User: "build", Secret: "PROXY"},
	Sign: []netpolicy.SignRule{{Host: "s3.example.org", Region: "eu-central-1",
		Secrets: netpolicy.SignSecrets{AccessKeyID: "S3_ID", SecretAccessKey: "S3_KEY"},
		Buckets: []netpolicy.BucketRule{{Name: "work", Prefix: "agent/"}}}}}

// wantGrants checks the requested policy of a sandbox.
func (s suite) wantGrants(what, id string, want netpolicy.Spec) {
	s.t.Helper()
	n, err := s.Engine.Network(id)
	if err != nil || !reflect.DeepEqual(n.Asked.Sign, want.Sign) || !reflect.DeepEqual(n.Asked.Proxy, want.Proxy) {
		s.t.Errorf("%s: sign %+v, proxy %+v, %v", what, n.Asked.Sign, n.Asked.Proxy, err)
	}
}

// grants checks what each way to another sandbox gets of a policy's buckets and proxy. The engine keeps the names of
// secrets alone. test/network checks the same with real connections.
func grants(s suite) {
	ctx := s.t.Context()
	s.wantGrants("a plain fork", s.forkNet(base, nil).ID, netpolicy.Spec{})
	sb := s.forkNet(base, &granting)
	s.wantGrants("a fork", sb.ID, granting)
	res, err := s.Engine.Branch(ctx, sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b", N: 1})
	s.must(err)
	s.must(res.Fork.Children[0].Err)
	s.wantGrants("a branch", res.Fork.Children[0].Info.ID, granting)
	s.wantGrants("a fork of the branch", s.forkNet("b", nil).ID, granting)
	s.wantGrants("a fork of the branch with its own policy", s.forkNet("b", &rules).ID, rules)
	other := granting
	other.Proxy, other.Sign = nil, nil
	_, err = s.Engine.SetNetwork(ctx, sb.ID, sandbox.NetworkRequest{Policy: other})
	s.must(err)
	_, err = s.Engine.Rollback(ctx, sb.ID, "b")
	s.must(err)
	s.wantGrants("a rollback brings no revoked grant back", sb.ID, other)
	_, err = s.Engine.SetNetwork(ctx, sb.ID, sandbox.NetworkRequest{Policy: granting})
	s.must(err)
	_, err = s.Engine.Rollback(ctx, sb.ID, "b")
	s.must(err)
	s.wantGrants("a rollback", sb.ID, granting)
	for _, cold := range []bool{false, true} {
		_, err = s.Engine.Pause(ctx, sb.ID, sandbox.PauseOptions{FilesystemOnly: cold})
		s.must(err)
		s.wantGrants("while it is paused", sb.ID, granting)
		_, err = s.Engine.Resume(ctx, sb.ID)
		s.must(err)
		s.wantGrants("a resume", sb.ID, granting)
	}
	res, err = s.Engine.Branch(ctx, sandbox.BranchRequest{SandboxID: sb.ID, Tag: "c", N: 1})
	s.must(err)
	child := res.Fork.Children[0].Info.ID
	_, err = s.Engine.SetNetwork(ctx, child, sandbox.NetworkRequest{Policy: other})
	s.must(err)
	_, err = s.Engine.Promote(ctx, sandbox.PromoteRequest{Child: child, Discard: true})
	s.must(err)
	s.wantGrants("a promotion", sb.ID, granting) // the place's, as for the secrets
}

// networks checks that a policy comes from the request, or else from the snapshot. Without either,
// all traffic is denied.
func networks(s suite) {
	s.wantPolicy(s.forkNet(base, nil).ID, sandbox.PolicyNone)
	sb := s.forkNet(base, &rules)
	s.wantPolicy(sb.ID, sandbox.PolicyCustom)
	s.branch(sandbox.BranchRequest{SandboxID: sb.ID, Tag: "b"})
	if def := s.info("b").Network; def == nil || !slices.Equal(def.Allow, rules.Allow) {
		s.t.Errorf("the snapshot's policy is %+v", def)
	}
	s.wantPolicy(s.forkNet("b", nil).ID, sandbox.PolicyCustom)
	s.wantPolicy(s.forkNet("b", &public).ID, sandbox.PolicyPublic)
	s.wantPolicy(s.forkNet("b", &netpolicy.Spec{}).ID, sandbox.PolicyNone)
	n, err := s.Engine.SetNetwork(s.t.Context(), sb.ID,
		sandbox.NetworkRequest{Policy: netpolicy.Spec{Default: netpolicy.Deny}})
	if err != nil || n.Policy() != sandbox.PolicyNone {
		s.t.Errorf("after the change: %+v, %v", n, err)
	}
	s.wantPolicy(sb.ID, sandbox.PolicyNone)
	_, err = s.Engine.Rollback(s.t.Context(), sb.ID, "b")
	s.must(err)
	s.wantPolicy(sb.ID, sandbox.PolicyNone) // the sandbox's current policy, not the one at the branch
}

// badRules checks the refusal of an invalid rule, which has no effect.
func badRules(s suite) {
	ctx := s.t.Context()
	_, err := s.Engine.Fork(ctx, sandbox.ForkRequest{Tag: base, N: 1, Network: &broken})
	s.want(sandbox.ErrInvalid, err, "fork with a bad rule")
	_, err = s.Engine.CreateSnapshot(ctx, sandbox.CreateRequest{Tag: "x", Image: s.Image, Network: &broken}, nil)
	s.want(sandbox.ErrInvalid, err, "creation with a bad rule")
	sb := s.fork(base, 1)[0].ID
	_, err = s.Engine.Branch(ctx, sandbox.BranchRequest{SandboxID: sb, Tag: "x", Network: &broken})
	s.want(sandbox.ErrInvalid, err, "branch with a bad rule")
	_, err = s.Engine.SetNetwork(ctx, sb, sandbox.NetworkRequest{Policy: broken})
	s.want(sandbox.ErrInvalid, err, "change to a bad rule")
	_, err = s.Engine.SetNetwork(ctx, "sb-none", sandbox.NetworkRequest{Policy: public})
	s.want(sandbox.ErrNotFound, err, "network of no sandbox")
	s.wantPolicy(sb, sandbox.PolicyNone)
	s.wantTags(base)
}
