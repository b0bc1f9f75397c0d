//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/ecr"
	"github.com/forkd/forkd/internal/images/ecr/ecrtest"
	"github.com/forkd/forkd/internal/images/image"
)

// pullsOf returns the pulls of a daemon without images, whose tenants may use the hosts.
func pullsOf(t *testing.T, hosts ...string) pulls {
	t.Helper()
	o := serveOptions{data: t.TempDir()}
	o.fetch.from = hosts
	images, err := image.OpenStore(filepath.Join(o.data, "images"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.openPulls(images)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhoMayUseARegistry(t *testing.T) {
	p := pullsOf(t, "registry.lan:5000")
	operator := t.Context()
	tenant := principal.With(operator, principal.Principal{Tenant: "acme"})
	for _, row := range []struct {
		ctx  context.Context
		ref  string
		want error
	}{
		{operator, "127.0.0.1:1/a", nil},
		{operator, "python:3", nil},
		{operator, "!", sandbox.ErrInvalid},
		{operator, "", sandbox.ErrInvalid},
		{tenant, "registry.lan:5000/a:1", nil},
		{tenant, "registry.lan/a:1", sandbox.ErrForbidden},
		{tenant, "registry.lan:5001/a:1", sandbox.ErrForbidden},
		{tenant, "127.0.0.1:1/a", sandbox.ErrForbidden},
		{tenant, "python:3", sandbox.ErrForbidden},
		{tenant, "registry.lan:5000@evil.example/a", sandbox.ErrInvalid},
	} {
		if err := p.Check(row.ctx, build.Reference{Ref: row.ref}); !errors.Is(err, row.want) {
			t.Errorf("%q: %v, want %v", row.ref, err, row.want)
		}
	}
}

// A tenant's keys are used for allowed registries of ECR only, and in the build's turn.
func TestPasswordsOfAWS(t *testing.T) {
	const host = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
	p := pullsOf(t, host, "registry.lan")
	stub := ecrtest.Start(t)
	p.ecr = ecr.Client{Transport: stub.Transport}
	keys := &build.AWSKeys{AccessKeyID: ecrtest.KeyID, SecretAccessKey: ecrtest.Secret, Region: "eu-west-1"}
	operator := t.Context()
	tenant := principal.With(operator, principal.Principal{Tenant: "acme"})
	for _, row := range []struct {
		ctx  context.Context
		ref  string
		want error
	}{
		{operator, host + "/a:1", nil},
		{tenant, host + "/a:1", nil},
		{tenant, "210987654321.dkr.ecr.eu-west-1.amazonaws.com/a:1", sandbox.ErrForbidden},
		{operator, "210987654321.dkr.ecr.eu-west-1.amazonaws.com/a:1", nil},
		{tenant, "registry.lan/a:1", sandbox.ErrInvalid},
		{operator, "registry.lan/a:1", sandbox.ErrInvalid},
		{operator, "public.ecr.aws/a/b:1", sandbox.ErrInvalid},
		{operator, "ubuntu", sandbox.ErrInvalid},
		{operator, "!", sandbox.ErrInvalid},
	} {
		if err := p.Check(row.ctx, build.Reference{Ref: row.ref, AWS: keys}); !errors.Is(err, row.want) {
			t.Errorf("%q: %v, want %v", row.ref, err, row.want)
		}
	}
	if asked, _ := stub.Asked(); len(asked) > 0 {
		t.Fatalf("a check sent %d requests", len(asked))
	}
	wrong := *keys
	wrong.SecretAccessKey = "other"
	_, err := p.Resolve(tenant, build.Reference{Ref: host + "/a:1", AWS: &wrong})
	if err == nil || !strings.Contains(err.Error(), "check awsSecretAccessKey") {
		t.Error(err)
	}
	for range 2 { // each build asks
		got, err := p.login(tenant, build.Reference{Ref: host + "/a:1", AWS: keys})
		if want := (build.Reference{Ref: host + "/a:1", Username: "AWS", Password: ecrtest.Password}); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if asked, wrong := stub.Asked(); len(asked) != 3 || len(wrong) != 0 {
		t.Errorf("%d requests, want 3, wrong: %v", len(asked), wrong)
	}
}

func TestImagesOfAReferenceThatAreHere(t *testing.T) {
	p := pullsOf(t)
	of := image.Container{Reference: "index.docker.io/library/python:3", Digest: "sha256:" + strings.Repeat("a", 64)}
	stream := imageStreamOf(t, "python-3", func(m *image.Metadata) { m.Container = &of })
	if _, err := p.images.Import(t.Context(), bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.images.Import(t.Context(), bytes.NewReader(imageStream(t, "python-4"))); err != nil {
		t.Fatal(err)
	}
	tenant := principal.With(t.Context(), principal.Principal{Tenant: "acme"})
	for ref, want := range map[string]string{"python:3": "python-3", "docker.io/library/python:3": "python-3",
		"python:4": "", "ghcr.io/library/python:3": "", "python:3@sha256:" + strings.Repeat("b", 64): "", "!": ""} {
		name, here := p.Here(tenant, ref)
		if name != want || here != (want != "") {
			t.Errorf("%s: %q, %v", ref, name, here)
		}
		if err := p.Check(tenant, build.Reference{Ref: ref}); (err == nil) != here {
			t.Errorf("%s: %v", ref, err)
		}
		// With credentials the registry is asked, so it must be an allowed one.
		if err := p.Check(tenant, build.Reference{Ref: ref, Username: "me"}); err == nil {
			t.Errorf("%s with credentials is allowed", ref)
		}
	}
	boots := p.bootable()
	if img, err := boots.Image(tenant, "python-3"); err != nil || img.Name != "python-3" {
		t.Errorf("%+v, %v", img, err)
	}
	if _, err := boots.Image(tenant, "none"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Error(err)
	}
}
