package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests are the objects of a file, decoded strictly: a field that does not exist is an error.
func manifests(t *testing.T, file string) (out []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../packaging", file))
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, doc := range regexp.MustCompile(`(?m)^---\n`).Split(string(text), -1) {
		if !strings.Contains(doc, "kind:") {
			continue
		}
		object, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, doc)
		}
		out = append(out, object)
	}
	return out
}

// pods returns the pods that objects make, by name.
func pods(objects []runtime.Object) map[string]core.PodTemplateSpec {
	out := map[string]core.PodTemplateSpec{}
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.DaemonSet:
			out[o.Name] = o.Spec.Template
		case *apps.Deployment:
			out[o.Name] = o.Spec.Template
		case *core.Pod:
			out[o.Name] = core.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
		}
	}
	return out
}

func TestTheBaseIsComplete(t *testing.T) {
	objects := manifests(t, "kustomize/base/forkd.yaml")
	all := pods(objects)
	if len(all) != 4 {
		t.Fatalf("pods: %v", all)
	}
	for name, pod := range all {
		volumes := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = true
		}
		for _, c := range pod.Spec.Containers {
			s := c.SecurityContext
			if s == nil || s.Privileged != nil && *s.Privileged || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
				t.Errorf("%s has rights that it does not name", name)
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s mounts %s, which is no volume", name, m.Name)
				}
			}
			if c.LivenessProbe != nil && strings.HasSuffix(name, "-node") {
				t.Error("a liveness probe of a node ends its VMs")
			}
		}
	}
	for _, o := range objects {
		service, ok := o.(*core.Service)
		if !ok {
			continue
		}
		selector, found := labels.SelectorFromSet(service.Spec.Selector), false
		for _, pod := range all {
			if selector.Matches(labels.Set(pod.Labels)) {
				found = true
				for _, p := range service.Spec.Ports {
					if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(c core.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
						t.Errorf("service %s: the pod has no port %s", service.Name, p.TargetPort.StrVal)
					}
				}
			}
		}
		if !found {
			t.Errorf("service %s selects no pod", service.Name)
		}
	}
}

// Each file in an argument is in a volume of the pod, and the docs say how to make its Secret.
func TestTheFilesOfArgumentsAreMounted(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/helm.md")
	if err != nil {
		t.Fatal(err)
	}
	inFolder := regexp.MustCompile(`^--[a-z-]+=(/etc/forkd/[a-z-]+)/([a-z.]+)$`)
	gateway := map[string]bool{}
	for name, pod := range pods(manifests(t, "kustomize/base/forkd.yaml")) {
		c, files := pod.Spec.Containers[0], map[string]bool{}
		for _, m := range c.VolumeMounts {
			i := slices.IndexFunc(pod.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
			secret := pod.Spec.Volumes[i].Secret
			if secret == nil {
				continue
			}
			for _, item := range secret.Items {
				files[m.MountPath+"/"+item.Path] = true
				if !strings.Contains(string(page), "--from-file="+item.Key) {
					t.Errorf("%s: the page does not make the key %s of the Secret %s", name, item.Key, secret.SecretName)
				}
			}
			if len(secret.Items) == 0 { // a certificate's Secret
				for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
					files[m.MountPath+"/"+file] = true
				}
			}
		}
		for _, arg := range c.Args {
			m := inFolder.FindStringSubmatch(arg)
			if m != nil && !files[m[1]+"/"+m[2]] {
				t.Errorf("%s: %s is in no volume", name, arg)
			}
			if m != nil && strings.HasSuffix(name, "-gateway") {
				gateway[m[2]] = true
			}
		}
	}
	if !gateway["gateway.key"] || !gateway["resume.key"] {
		t.Errorf("the gateway has the files %v", gateway)
	}
}

// The suite of test/kube runs the operator with the rights of rbac.yaml.
func TestTheOperatorHasTheRightsThatWereTested(t *testing.T) {
	rules := func(file string) (wide, own []rbac.PolicyRule) {
		for _, o := range manifests(t, file) {
			switch o := o.(type) {
			case *rbac.ClusterRole:
				wide = append(wide, o.Rules...)
			case *rbac.Role:
				if strings.HasSuffix(o.Name, "-operator") {
					own = append(own, o.Rules...)
				}
			}
		}
		return wide, own
	}
	wide, own := rules("kustomize/base/forkd.yaml")
	wantWide, wantOwn := rules("kubernetes/rbac.yaml")
	if len(wantWide) == 0 || !reflect.DeepEqual(wide, wantWide) {
		t.Errorf("rights in the cluster: %v, want %v", wide, wantWide)
	}
	wantOwn = append(wantOwn, rbac.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
		Verbs: []string{"get", "list", "watch"}}) // to find the nodes of the chart
	if !reflect.DeepEqual(own, wantOwn) {
		t.Errorf("rights in its namespace: %v, want %v", own, wantOwn)
	}
}

// Each argument of the manifests is a flag of the program.
func TestTheManifestsUseFlagsThatExist(t *testing.T) {
	forkd := filepath.Join(t.TempDir(), "forkd")
	if out, err := exec.Command("go", "build", "-o", forkd, "../forkd").CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	help := func(program string, args ...string) string {
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, out)
		}
		return string(out)
	}
	commands := 0
	check := func(where string, line []string) {
		t.Helper()
		program, rest := filepath.Base(line[0]), line[1:]
		if program == "forkd-kube" {
			own, other := rest, []string(nil)
			if i := slices.Index(rest, "--"); i >= 0 {
				own, other = rest[:i], rest[i+1:]
			}
			cmd, args, err := newRoot(new(bool)).Find(own)
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err != nil {
				t.Errorf("%s: %v", where, err)
			}
			commands++
			if other == nil {
				return
			}
			program, rest = filepath.Base(other[0]), other[1:]
		}
		if program != "forkd" {
			t.Fatalf("%s runs %q", where, program)
		}
		commands++
		text, sub := "", []string{}
		for _, arg := range rest {
			if !strings.HasPrefix(arg, "-") && text == "" {
				sub = append(sub, arg)
				continue
			}
			if text == "" {
				text = help(forkd, sub...)
			}
			flag, _, _ := strings.Cut(arg, "=")
			if strings.HasPrefix(flag, "--") && !strings.Contains(text, " "+flag+" ") {
				t.Errorf("%s: forkd %v has no flag %s", where, sub, flag)
			}
		}
		if text == "" {
			help(forkd, sub...)
		}
	}
	for _, file := range []string{"kustomize/base/forkd.yaml", "k8s/forkd.yaml"} {
		for name, pod := range pods(manifests(t, file)) {
			for _, c := range pod.Spec.Containers {
				check(file+" "+name, slices.Concat(c.Command, c.Args))
				if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
					check(file+" "+name+" preStop", c.Lifecycle.PreStop.Exec.Command)
				}
				if c.ReadinessProbe != nil && c.ReadinessProbe.Exec != nil {
					check(file+" "+name+" readiness", c.ReadinessProbe.Exec.Command)
				}
			}
		}
	}
	if commands < 9 {
		t.Errorf("only %d commands were found", commands)
	}
}
