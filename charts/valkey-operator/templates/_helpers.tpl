{{/* Names are fixed, since there is one operator per namespace: its Lease is called like it. */}}
{{- define "valkey-operator.selector" -}}
app.kubernetes.io/name: valkey-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "valkey-operator.labels" -}}
{{ include "valkey-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What the whole Kubernetes cluster shares, so two operators must not meet in it. */}}
{{- define "valkey-operator.clusterName" -}}
valkey-operator-{{ .Release.Namespace }}
{{- end }}

{{/* What the operator does in a namespace that it looks after, and nothing more. */}}
{{- define "valkey-operator.rules" -}}
- apiGroups: [valkey.io]
  resources: [valkeyclusters]
  verbs: [get, list, watch, patch]
- apiGroups: [valkey.io]
  resources: [valkeyclusters/status, valkeyupgrades/status]
  verbs: [patch]
- apiGroups: [valkey.io]
  resources: [valkeyupgrades]
  verbs: [get, list, watch]
- apiGroups: [valkey.io]
  resources: [valkeyclusterstatuses, valkeycertificatebundles, valkeycertificatebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [valkey.io]
  resources: [valkeyclusterstatuses/status, valkeycertificatebundles/status, valkeycertificatebindings/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
