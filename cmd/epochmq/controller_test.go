package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epochmq/epochmq/internal/wiretest"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// freePort is a port of loopback that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

// controllerFiles writes the configuration of a group of n.
func controllerFiles(t *testing.T, n int, more string) (files, addrs []string) {
	t.Helper()
	dir, peers := t.TempDir(), ""
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		peers += fmt.Sprintf("n%d-%s;", i, addrs[i])
	}
	for i := range n {
		file := filepath.Join(dir, fmt.Sprintf("n%d.conf", i))
		text := fmt.Sprintf("controllerDLegerGroup=g\ncontrollerDLegerPeers=%s\ncontrollerDLegerSelfId=n%d\ncontrollerStorePath=%s\nbindAddress=127.0.0.1\n%s", peers, i, filepath.Join(dir, "data"), more)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		files = append(files, file)
	}
	return files, addrs
}

// controllerLeader asks the controllers who leads until one of them knows.
func controllerLeader(t *testing.T, addrs ...string) (leader string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, addr := range addrs {
			p := wiretest.Dial(t, addr)
			a := p.Call(protocol.ReqControllerGetMetadataInfo, nil, nil)
			leader = a.Ext["controllerLeaderId"]
			if leader != "" && p.Conn.Close() == nil {
				return true
			}
		}
		return false
	}, 30*time.Second, 50*time.Millisecond)
	return leader
}

func TestControllerGroup(t *testing.T) {
	files, addrs := controllerFiles(t, 3, "")
	stops := map[string]func() int{}
	for i, file := range files {
		_, stops[fmt.Sprint("n", i)] = background(t, "controller started", "controller", "-c", file)
	}
	first := controllerLeader(t, addrs...)
	require.Zero(t, stops[first]())
	var left []string
	for i, addr := range addrs {
		if fmt.Sprint("n", i) != first {
			left = append(left, addr)
		}
	}
	require.Eventually(t, func() bool { return controllerLeader(t, left...) != first }, 30*time.Second, 50*time.Millisecond)
	for _, stop := range stops {
		require.Zero(t, stop())
	}
}

func TestControllerListings(t *testing.T) {
	const file = "../../conf/controller/cluster-3n-independent/controller-n1.conf"
	all := ok(t, "", "controller", "-p", "-c", file)
	for _, line := range []string{"controllerDLegerSelfId=n1", "controllerDLegerPeers=n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858", "electMasterMaxRetryCount=3"} {
		require.Contains(t, "\n"+all, "\n"+line+"\n")
	}
	few := ok(t, "", "controller", "-m", "-c", file)
	require.Contains(t, few, "controllerDLegerGroup=group1\n")
	require.NotContains(t, few, "electMasterMaxRetryCount")
	require.Contains(t, ok(t, "", "controller", "--keys"), "enableElectUncleanMaster=false\tdefault=false\tacts=live\thonoured\n")
	both := ok(t, "", "namesrv", "-p", "-c", "../../conf/controller/cluster-3n-namesrv-plugin/namesrv-n2.conf")
	for _, line := range []string{"listenPort=9896", "controllerDLegerSelfId=n2", "orderMessageEnable=false"} {
		require.Contains(t, "\n"+both, "\n"+line+"\n")
	}
	require.NotContains(t, ok(t, "", "namesrv", "-p"), "controllerDLegerSelfId")
}

func TestControllerFailures(t *testing.T) {
	files, _ := controllerFiles(t, 1, "")
	_, stop := background(t, "controller started", "controller", "-c", files[0])
	r := run(t, "", "controller", "-c", files[0])
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "in use by another process; stop that process, or set controllerStorePath")
	t.Setenv("EPOCHMQ_CONTROLLERSTOREPATH", t.TempDir())
	r = run(t, "", "controller", "-c", files[0])
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.errOut, "or change the address of this controller in controllerDLegerPeers")
	require.Zero(t, stop())
}

func TestControllerVerbs(t *testing.T) {
	files, addrs := controllerFiles(t, 1, "")
	_, stop := background(t, "controller leads", "controller", "-c", files[0])
	p := wiretest.Dial(t, addrs[0])
	name := func(more ...string) map[string]string {
		m := map[string]string{"clusterName": "c", "brokerName": "b"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for id := 1; id <= 2; id++ {
		addr := fmt.Sprint("127.0.0.1:1091", id)
		require.Zero(t, p.Call(protocol.ReqControllerApplyBrokerID, name("appliedBrokerId", fmt.Sprint(id), "registerCheckCode", addr+";1"), nil).Code)
		require.Zero(t, p.Call(protocol.ReqControllerRegisterBroker, name("brokerId", fmt.Sprint(id), "brokerAddress", addr), nil).Code)
	}
	require.Zero(t, p.Call(protocol.ReqControllerElectMaster, name("brokerId", "1"), nil).Code)

	require.JSONEq(t, `[{"broker":"b","id":1,"addr":"127.0.0.1:10911","master":true,"inSync":true,"alive":true,"masterEpoch":1,"syncStateSetEpoch":1},
		{"broker":"b","id":2,"addr":"127.0.0.1:10912","master":false,"inSync":false,"alive":true,"masterEpoch":1,"syncStateSetEpoch":1}]`,
		ok(t, "", "controller", "status", "-a", addrs[0], "-b", "b", "-b", "unknown", "-o", "json"))
	require.Contains(t, ok(t, "", "controller", "status", "-a", "127.0.0.1:1;"+addrs[0], "-b", "b"), "MASTER EPOCH")
	require.JSONEq(t, fmt.Sprintf(`[{"id":"n0","addr":%q,"group":"g","leader":%q,"state":"leader"}]`, addrs[0], addrs[0]), ok(t, "", "controller", "metadata", "-a", addrs[0], "-o", "json"))
	require.Regexp(t, `(?m)^enableElectUncleanMaster +false$`, ok(t, "", "controller", "config", "-a", addrs[0]))
	require.JSONEq(t, `{"enableElectUncleanMaster":"true"}`, ok(t, "", "controller", "config", "-a", addrs[0], "--set", "enableElectUncleanMaster=true", "-o", "json"))
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(text), "enableElectUncleanMaster=true")

	for args, says := range map[string]string{
		"status -a 127.0.0.1:1 -b b":               "no controller answers at 127.0.0.1:1",
		"status -a " + addrs[0] + " -n [::1]:1":    "no name server answers at [::1]:1",
		"config -a " + addrs[0] + " --set x=1":     "--set x names no key; 'epochmq controller --keys'",
		"config -a " + addrs[0] + " --set x":       "--set x has no value",
		"metadata -a ;":                            "no controller is named; give -a host:port",
		"metadata -a " + addrs[0] + " -o markdown": "output form",
	} {
		r := run(t, "", append([]string{"controller"}, strings.Fields(args)...)...)
		require.NotZero(t, r.code, args)
		require.Contains(t, r.errOut, says, args)
	}
	require.NoError(t, p.Conn.Close())
	require.Zero(t, stop())
}

func TestControllerInNamesrv(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	port := freePort(t)
	files, addrs := controllerFiles(t, 1, fmt.Sprintf("enableControllerInNamesrv=true\nlistenPort=%d\n", port))
	out, stop := background(t, "controller leads", "namesrv", "-c", files[0])
	require.NotContains(t, out.String(), "nothing here knows")
	require.Equal(t, "n0", controllerLeader(t, addrs...))
	p := wiretest.Dial(t, fmt.Sprintf("127.0.0.1:%d", port))
	require.Contains(t, string(p.Call(protocol.ReqGetNamesrvConfig, nil, nil).Body), "controllerDLegerGroup=g\n")
	require.NoError(t, p.Conn.Close())
	require.Zero(t, stop())
	require.Contains(t, out.String(), "controller stopped")
}
