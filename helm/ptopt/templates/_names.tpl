{{- /* Names and labels. Names are cut short enough for the longest suffix, that of a training's pod. */ -}}

{{- define "ptopt.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 30 | trimSuffix "-" -}}
{{- end -}}

{{- define "ptopt.fullname" -}}
{{- $name := include "ptopt.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What selects the pods of a component: (dict "root" $ "component" "bot"). */ -}}
{{- define "ptopt.selector" -}}
app.kubernetes.io/name: {{ include "ptopt.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "ptopt.labels" -}}
{{ include "ptopt.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "ptopt.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "ptopt.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- /* (dict "root" $ "image" "bot") */ -}}
{{- define "ptopt.image" -}}
{{- $image := get .root.Values.images .image -}}
{{- $repository := printf "%s/%s" (.root.Values.images.registry | default $image.registry) $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The Secret with the settings, and that of the built-in services. */ -}}
{{- define "ptopt.secret" -}}
{{- if .Values.secretValues -}}
{{- include "ptopt.fullname" . -}}
{{- else -}}
{{- required "set existingSecret, or secretValues" .Values.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "ptopt.builtinSecret" -}}
{{- printf "%s-builtin" (include "ptopt.fullname" .) -}}
{{- end -}}
