{{- /* What the pods of the service have in common. All take (dict "root" $ "component" NAME …). */ -}}

{{- define "ptopt.podMetadata" -}}
labels:
  {{- include "ptopt.labels" . | nindent 2 }}
  {{- with .root.Values.pods.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ printf "%s%s" (include "ptopt.settings" .root) (toYaml .root.Values.secretValues) | sha256sum }}
  {{- with .root.Values.pods.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* "user": user id; "from": the values with nodeSelector, tolerations and affinity. */ -}}
{{- define "ptopt.podSpec" -}}
{{- $user := .user | default 10001 -}}
serviceAccountName: {{ include "ptopt.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $user }}
  runAsGroup: {{ $user }}
  fsGroup: {{ .group | default 10001 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" }}
{{- with get ($.from | default dict) $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* "image": its name in `images`. */ -}}
{{- define "ptopt.container" -}}
image: {{ include "ptopt.image" . }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- /* Requests and limits. "values": with `resources`, `gpuResource`; "gpus": how many. */ -}}
{{- define "ptopt.resources" -}}
{{- $resources := deepCopy .values.resources -}}
{{- if .gpus -}}
{{- $_ := set $resources "limits" (set (default dict $resources.limits) .values.gpuResource .gpus) -}}
{{- end -}}
resources:
  {{- toYaml $resources | nindent 2 }}
{{- end -}}

{{- /* Settings and secrets of a process of the service. "heartbeat": it renews the file that a probe looks at. */ -}}
{{- define "ptopt.environment" -}}
envFrom:
  - configMapRef:
      name: {{ include "ptopt.fullname" .root }}
env:
  - name: PTOPT_SECRETS_DIR
    value: /run/secrets/ptopt
  - name: HOME
    value: /tmp
  {{- if .heartbeat }}
  - name: PTOPT_HEARTBEAT_FILE
    value: /tmp/heartbeat
  {{- end }}
  {{- if .root.Values.certificateAuthority.configMap }}
  - name: SSL_CERT_FILE
    value: /etc/ptopt/ca.crt
  {{- end }}
  {{- if .hub }}
  {{- include "ptopt.hub" .root | nindent 2 }}
  {{- end }}
  {{- range $name, $value := .root.Values.environment }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
{{- end -}}

{{- /* Where and how models are got. */ -}}
{{- define "ptopt.hub" -}}
- name: HF_HOME
  value: {{ ternary "/models/huggingface" "/tmp/huggingface" .Values.models.enabled }}
{{- if .Values.models.offline }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- with .Values.models.tokenSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: HF_TOKEN
{{- end }}
{{- end -}}

{{- /* "models": "rw" or "ro" mounts that volume, too. */ -}}
{{- define "ptopt.mounts" -}}
- name: tmp
  mountPath: /tmp
- name: secrets
  mountPath: /run/secrets/ptopt
  readOnly: true
{{- if .root.Values.certificateAuthority.configMap }}
- name: certificates
  mountPath: /etc/ptopt
  readOnly: true
{{- end }}
{{- if and .models .root.Values.models.enabled }}
- name: models
  mountPath: /models
  {{- if eq .models "ro" }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end -}}

{{- define "ptopt.volumes" -}}
- name: tmp
  emptyDir: {}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "ptopt.secret" .root }}
      {{- if or .root.Values.postgresql.enabled .root.Values.valkey.enabled }}
      - secret:
          name: {{ include "ptopt.builtinSecret" .root }}
      {{- end }}
{{- with .root.Values.certificateAuthority }}
{{- if .configMap }}
- name: certificates
  configMap:
    name: {{ .configMap }}
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- if and .models .root.Values.models.enabled }}
- name: models
  persistentVolumeClaim:
    claimName: {{ .root.Values.models.existingClaim | default (printf "%s-models" (include "ptopt.fullname" .root)) }}
{{- end }}
{{- end -}}

{{- /* Dead when the file that a process renews is older than "minutes". */ -}}
{{- define "ptopt.heartbeat" -}}
startupProbe:
  exec:
    command: [test, -f, /tmp/heartbeat]
  periodSeconds: 5
  failureThreshold: {{ .startup | default 60 }}
livenessProbe:
  exec:
    command: [sh, -c, 'test -n "$(find /tmp/heartbeat -mmin -{{ .minutes }})"']
  periodSeconds: 60
  timeoutSeconds: 5
{{- end -}}

{{- /* A claim: (dict "root" $ "component" NAME "name" SUFFIX "values" …). It outlives the release. */ -}}
{{- define "ptopt.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ printf "%s-%s" (include "ptopt.fullname" .root) .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "ptopt.labels" . | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
spec:
  accessModes: {{ toJson (.values.accessModes | default (list "ReadWriteOnce")) }}
  {{- with .values.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .values.size }}
{{- end -}}

{{- /* The database alone: what migrations and training need. "secret": where it stands. */ -}}
{{- define "ptopt.databaseOnly" -}}
- name: HOME
  value: /tmp
- name: PTOPT_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: PTOPT_DATABASE_URL
{{- end -}}

{{- /* The Secret with the URL of the database. */ -}}
{{- define "ptopt.databaseSecret" -}}
{{- ternary (include "ptopt.builtinSecret" .) (include "ptopt.secret" .) .Values.postgresql.enabled -}}
{{- end -}}

{{- /* The built-in database comes with the release, too late for a hook: pods wait for the schema, and the web application's make
it. "do": upgrade or check. */ -}}
{{- define "ptopt.waitForSchema" -}}
{{- if .root.Values.postgresql.enabled -}}
initContainers:
  - name: schema
    {{- include "ptopt.container" . | nindent 4 }}
    command: [sh, -c, "until python -m service {{ .do }}; do sleep 3; done"]
    env:
      {{- include "ptopt.databaseOnly" (dict "secret" (include "ptopt.builtinSecret" .root)) | nindent 6 }}
    {{- include "ptopt.resources" (dict "values" .root.Values.migrations) | nindent 4 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
{{- end -}}
{{- end -}}
