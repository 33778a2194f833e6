package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/epochmq/epochmq/internal/fastjson"
	"github.com/epochmq/epochmq/remoting/protocol"
)

// ControllerInfo is what one controller knows about its group.
type ControllerInfo struct {
	Group      string
	LeaderID   string // empty during an election
	LeaderAddr string
	Leads      bool // it is the leader itself
	Peers      []ControllerPeer
}

// ControllerPeer is a controller of a group. ID is empty in groups of RocketMQ's JRaft kind.
type ControllerPeer struct{ ID, Addr string }

// Controller asks one controller who leads its group.
func (a *Admin) Controller(ctx context.Context, addr string) (*ControllerInfo, error) {
	answer, err := a.call(ctx, addr, protocol.ReqControllerGetMetadataInfo, nil, nil)
	if err != nil {
		return nil, err
	}
	info := &ControllerInfo{Group: answer.Ext["group"], LeaderID: answer.Ext["controllerLeaderId"], LeaderAddr: answer.Ext["controllerLeaderAddress"],
		Leads: answer.Ext["isLeader"] == "true"}
	for p := range strings.SplitSeq(answer.Ext["peers"], ";") {
		if id, rest, ok := strings.Cut(p, ":"); ok && strings.Contains(rest, ":") {
			info.Peers = append(info.Peers, ControllerPeer{id, rest})
		} else if ok {
			info.Peers = append(info.Peers, ControllerPeer{"", p})
		}
	}
	return info, nil
}

// ControllerLeader asks controllers, one after the other, for the address of the one that leads.
func (a *Admin) ControllerLeader(ctx context.Context, addrs []string) (string, error) {
	var errs []error
	for _, addr := range addrs {
		info, err := a.Controller(ctx, addr)
		switch {
		case err != nil:
			errs = append(errs, err)
		case info.LeaderAddr == "":
			errs = append(errs, fmt.Errorf("controller %s knows no leader", addr))
		default:
			return info.LeaderAddr, nil
		}
	}
	return "", errors.Join(errs...)
}

// Replica is a broker of a set as the controller sees it.
type Replica struct {
	BrokerID int64  `json:"brokerId"`
	Addr     string `json:"brokerAddress"`
	Alive    bool   `json:"alive"`
}

// ReplicaSet is a broker set as the controller has it. MasterID is 0 when there is no master.
type ReplicaSet struct {
	MasterID    int64     `json:"masterBrokerId"`
	MasterAddr  string    `json:"masterAddress"`
	MasterEpoch int32     `json:"masterEpoch"`
	SyncEpoch   int32     `json:"syncStateSetEpoch"`
	InSync      []Replica `json:"inSyncReplicas"`
	NotInSync   []Replica `json:"notInSyncReplicas"`
}

// ReplicaSets asks the controller that leads for broker sets. Sets that it does not know are left out.
func (a *Admin) ReplicaSets(ctx context.Context, leader string, names []string) (map[string]ReplicaSet, error) {
	body, err := fastjson.Marshal(names)
	if err != nil {
		return nil, err
	}
	answer, err := a.call(ctx, leader, protocol.ReqControllerGetSyncStateData, nil, body)
	if err != nil {
		return nil, err
	}
	got, err := read[struct {
		Table map[string]ReplicaSet `json:"replicasInfoTable"`
	}](leader, answer)
	if err != nil {
		return nil, err
	}
	return got.Table, nil
}

// ControllerConfig reads a controller's configuration.
func (a *Admin) ControllerConfig(ctx context.Context, addr string) (map[string]string, error) {
	answer, err := a.call(ctx, addr, protocol.ReqGetControllerConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	return properties(answer.Body), nil
}

// UpdateControllerConfig changes keys of a controller's configuration, which writes them to its file.
func (a *Admin) UpdateControllerConfig(ctx context.Context, addr string, set map[string]string) error {
	_, err := a.call(ctx, addr, protocol.ReqUpdateControllerConfig, nil, appendProperties(set))
	return err
}
