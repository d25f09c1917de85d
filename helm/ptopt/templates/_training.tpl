{{- /* What training and retraining have in common. They get the database, and no other secret of the service. */ -}}

{{- define "ptopt.trainingEnvironment" -}}
{{- include "ptopt.databaseOnly" (dict "secret" (include "ptopt.databaseSecret" .)) }}
- name: PYTHONPATH
  value: /app
- name: XDG_CACHE_HOME
  value: /runs/.cache
{{- range $name := list "PTOPT_MODEL_REGISTRY" "PTOPT_RETRAIN_ADAPTER" "PTOPT_RETRAIN_CLONES" }}
{{- with index $.Values.settings $name }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{ include "ptopt.hub" . }}
{{- range $name, $value := .Values.environment }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "ptopt.trainingMounts" -}}
- name: tmp
  mountPath: /tmp
- name: runs
  mountPath: /runs
- name: shared-memory
  mountPath: /dev/shm
{{- if .Values.models.enabled }}
- name: models
  mountPath: /models
{{- end }}
{{- end -}}

{{- define "ptopt.trainingVolumes" -}}
- name: tmp
  emptyDir: {}
- name: runs
  persistentVolumeClaim:
    claimName: {{ .root.Values.training.storage.existingClaim | default (printf "%s-runs" (include "ptopt.fullname" .root)) }}
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ .sharedMemory }}
{{- if .root.Values.models.enabled }}
- name: models
  persistentVolumeClaim:
    claimName: {{ .root.Values.models.existingClaim | default (printf "%s-models" (include "ptopt.fullname" .root)) }}
{{- end }}
{{- end -}}
